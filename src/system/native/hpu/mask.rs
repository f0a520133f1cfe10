//! `HABANA_VISIBLE_DEVICES` and `HABANA_VISIBLE_MODULES`, and the groups that a server can be split into.
//!
//! Sources: "Multiple Workloads on a Single Docker", "Multiple Dockers Each with a Single Workload" and "Gaudi-to-process
//! Assignment" of the Gaudi documentation; README of habana-container-runtime.
//!
//! The devices are indices, which may change when the machine starts, or `all`; the container runtime reads them when a
//! container is made, gives it the nodes of those devices, and sets the modules for the software inside. The modules are
//! ids, which stay; Gaudi's software reads them in every process. So where both are set the modules decide alone, and
//! devices that name others are an error. Devices set without modules are followed as well: whoever set them meant
//! these.

use std::collections::BTreeSet;

use crate::system::mask::Mask;
use crate::system::native::list::{quoted, sentence};
use crate::variant::DeviceKey;

pub(super) const DEVICES: &str = "HABANA_VISIBLE_DEVICES";
pub(super) const MODULES: &str = "HABANA_VISIBLE_MODULES";

/// The modules that may work together, by their number. One alone may be any, and all of a server work together.
const GROUPS: [&[u32]; 6] = [&[0, 1], &[2, 3], &[4, 5], &[6, 7], &[0, 1, 2, 3], &[4, 5, 6, 7]];

/// What both settings come to for devices `(index, module)`: for each, the setting that hides it, and the rows.
pub(super) fn apply(
    devices: &[(u32, Option<u32>)],
    visible_devices: Option<&str>,
    visible_modules: Option<&str>,
) -> (Vec<Option<String>>, Vec<Mask>) {
    let of_devices = visible_devices.map(|value| by_index(devices, value));
    let of_modules = visible_modules.map(|value| by_module(devices, value));
    let mut hidden_by = vec![None; devices.len()];
    let mut masks = Vec::new();
    // The modules decide alone, where they say anything.
    let modules_decide = of_modules.as_ref().is_some_and(|list| list.shown.is_some());
    for (variable, value, list) in [(DEVICES, visible_devices, of_devices), (MODULES, visible_modules, of_modules)] {
        let (Some(value), Some(list)) = (value, list) else { continue };
        let mut mask = Mask::new(DeviceKey::Hpu, variable, value, list.effect.clone());
        let mut faults = list.faults;
        if let Some(shown) = &list.shown {
            if variable == DEVICES && modules_decide {
                "none of its own: HABANA_VISIBLE_MODULES is set, which decides".clone_into(&mut mask.effect);
                let others = visible_modules.and_then(|value| by_module(devices, value).shown);
                if others.is_some_and(|others| others != *shown) {
                    faults.push("names other devices than HABANA_VISIBLE_MODULES".to_owned());
                }
            } else {
                for (hidden, shown) in hidden_by.iter_mut().zip(shown) {
                    *hidden = (!shown).then(|| format!("{variable}={value}"));
                }
                let hidden = shown.iter().filter(|shown| !**shown).count();
                mask.effect = match (hidden, shown.len()) {
                    (_, 0) => "there is no Gaudi to act on".to_owned(),
                    (0, _) => "hides nothing".to_owned(),
                    (hidden, all) if hidden == all => format!("hides all {all}"),
                    (hidden, all) => format!("hides {hidden} of {all}"),
                };
                let left: Option<Vec<u32>> =
                    devices.iter().zip(shown).filter(|(_, shown)| **shown).map(|((_, module), _)| *module).collect();
                faults.extend(left.filter(|_| hidden > 0).and_then(|left| group_fault(&left)));
            }
        }
        mask.error = sentence(&faults);
        masks.push(mask);
    }
    (hidden_by, masks)
}

/// What is wrong with these modules as a part of a server; `None` for a group that is supported.
pub(super) fn group_fault(modules: &[u32]) -> Option<String> {
    let set: BTreeSet<u32> = modules.iter().copied().collect();
    if set.len() <= 1 || set.len() == 8 || GROUPS.iter().any(|group| set.iter().eq(group.iter())) {
        return None;
    }
    let list = |modules: &mut dyn Iterator<Item = &u32>| {
        format!("{{{}}}", modules.map(u32::to_string).collect::<Vec<_>>().join(","))
    };
    let of = |size: usize| {
        let groups = GROUPS.iter().filter(|group| group.len() == size);
        groups.map(|group| list(&mut group.iter())).collect::<Vec<_>>().join(" ")
    };
    let given = list(&mut set.iter());
    Some(format!(
        "the modules {given} are no group that works together: supported are one alone, two of {}, four of {}, and all 8",
        of(2),
        of(4)
    ))
}

/// A list, read.
struct List {
    /// For each device whether it is in the list; `None`: the list hides nothing and decides nothing.
    shown: Option<Vec<bool>>,
    faults: Vec<String>,
    /// Where nothing is decided.
    effect: String,
}

fn by_index(devices: &[(u32, Option<u32>)], value: &str) -> List {
    if value.trim().eq_ignore_ascii_case("all") {
        return List { shown: Some(vec![true; devices.len()]), faults: Vec::new(), effect: String::new() };
    }
    by_number(value, "index", "indices", "device", &devices.iter().map(|(index, _)| *index).collect::<Vec<_>>())
}

fn by_module(devices: &[(u32, Option<u32>)], value: &str) -> List {
    let modules: Option<Vec<u32>> = devices.iter().map(|(_, module)| *module).collect();
    match modules {
        Some(modules) => by_number(value, "module id", "module ids", "module", &modules),
        None => List {
            shown: None,
            faults: vec!["the module ids of this machine are not known".to_owned()],
            effect: "not followed here: hl-smi or a newer kernel driver is needed to tell the module ids".to_owned(),
        },
    }
}

fn by_number(value: &str, kind: &str, kinds: &str, noun: &str, known: &[u32]) -> List {
    let mut faults = Vec::new();
    if value.trim().is_empty() {
        faults.push(format!("expected a list of {kinds} with commas between them"));
        return List { shown: None, faults, effect: "taken for unset: it is empty".to_owned() };
    }
    let mut listed = BTreeSet::new();
    for text in value.split(',').map(str::trim) {
        let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
        match number {
            None => faults.push(format!("{} is no {kind}", quoted(text))),
            Some(number) if !listed.insert(number) => faults.push(format!("{number} is named twice")),
            Some(number) if !known.is_empty() && !known.contains(&number) => {
                let mut known = known.to_vec();
                known.sort_unstable();
                let known = known.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                faults.push(format!("there is no {noun} {number}: only {known}"));
            }
            Some(_) => {}
        }
    }
    List { shown: Some(known.iter().map(|number| listed.contains(number)).collect()), faults, effect: String::new() }
}

#[cfg(test)]
mod tests {
    use super::{apply, group_fault};

    /// Indices and modules of a server, as one printed them.
    const SERVER: [(u32, Option<u32>); 8] = [
        (0, Some(5)),
        (1, Some(4)),
        (2, Some(7)),
        (3, Some(6)),
        (4, Some(2)),
        (5, Some(3)),
        (6, Some(0)),
        (7, Some(1)),
    ];

    /// Indices that stay visible, and `effect | error` of each row.
    fn outcome(devices: Option<&str>, modules: Option<&str>) -> (Vec<usize>, Vec<String>) {
        let (hidden, masks) = apply(&SERVER, devices, modules);
        let visible =
            hidden.iter().enumerate().filter(|(_, hidden)| hidden.is_none()).map(|(index, _)| index).collect();
        let text = |mask: &super::Mask| match &mask.error {
            Some(error) => format!("{} | {error}", mask.effect),
            None => mask.effect.clone(),
        };
        (visible, masks.iter().map(text).collect())
    }

    #[test]
    fn groups_are_those_of_the_documentation() {
        for good in [
            &[][..],
            &[0],
            &[7],
            &[0, 1],
            &[3, 2],
            &[4, 5],
            &[6, 7],
            &[0, 1, 2, 3],
            &[5, 4, 7, 6],
            &[0, 1, 2, 3, 4, 5, 6, 7],
        ] {
            assert_eq!(group_fault(good), None, "{good:?}");
        }
        for bad in
            [&[0, 2][..], &[1, 2], &[0, 7], &[0, 1, 2], &[0, 1, 4, 5], &[2, 3, 4, 5], &[0, 1, 2, 3, 4, 5], &[8, 9]]
        {
            assert!(group_fault(bad).is_some(), "{bad:?}");
        }
        assert_eq!(
            group_fault(&[2, 0]).unwrap(),
            "the modules {0,2} are no group that works together: supported are one alone, two of {0,1} {2,3} {4,5} {6,7}, \
             four of {0,1,2,3} {4,5,6,7}, and all 8"
        );
    }

    #[test]
    fn modules_and_indices_are_different_numbers() {
        assert_eq!(outcome(None, Some("0,1")), (vec![6, 7], vec!["hides 6 of 8".to_owned()]));
        assert_eq!(outcome(Some("6, 7"), None), (vec![6, 7], vec!["hides 6 of 8".to_owned()]));
        assert_eq!(outcome(Some("all"), None).1, ["hides nothing"]);
        assert_eq!(outcome(None, Some("7,6,5,4,3,2,1,0")).1, ["hides nothing"]);
        assert_eq!(outcome(None, Some("4")), (vec![1], vec!["hides 7 of 8".to_owned()]));
        // Indices 0 and 2 are the modules 5 and 7.
        let (visible, rows) = outcome(Some("0,2"), None);
        assert_eq!(visible, [0, 2]);
        assert!(rows[0].starts_with("hides 6 of 8 | the modules {5,7} are no group"), "{rows:?}");
        let (visible, rows) = outcome(None, Some("0,1,2"));
        assert_eq!((visible.len(), rows[0].contains("the modules {0,1,2} are no group")), (3, true));
    }

    #[test]
    fn where_both_are_set_the_modules_decide() {
        let none = "none of its own: HABANA_VISIBLE_MODULES is set, which decides".to_owned();
        // As the container runtime sets them.
        assert_eq!(outcome(Some("6,7"), Some("0,1")), (vec![6, 7], vec![none.clone(), "hides 6 of 8".to_owned()]));
        let (visible, rows) = outcome(Some("0,1"), Some("0,1"));
        assert_eq!(visible, [6, 7]);
        assert_eq!(rows[0], format!("{none} | names other devices than HABANA_VISIBLE_MODULES"));
        // Modules that say nothing decide nothing.
        assert_eq!(outcome(Some("6,7"), Some("")).0, [6, 7]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (value, visible, text) in [
            ("", 8, "taken for unset: it is empty | expected a list of module ids with commas between them"),
            (&"a,".repeat(1000)[..1999], 0, "hides all 8 | \"a\" is no module id"),
            (
                "21,22,23,24,25,26,27,b,c,d,e",
                0,
                "hides all 8 | there is no module 21: only 0, 1, 2, 3, 4, 5, 6, 7; there is no module 22: only 0, 1, 2, 3, \
                 4, 5, 6, 7; there is no module 23: only 0, 1, 2, 3, 4, 5, 6, 7; there is no module 24: only 0, 1, 2, 3, \
                 4, 5, 6, 7; there is no module 25: only 0, 1, 2, 3, 4, 5, 6, 7; there is no module 26: only 0, 1, 2, 3, \
                 4, 5, 6, 7; there is no module 27: only 0, 1, 2, 3, 4, 5, 6, 7; \"b\" is no module id; and 3 more",
            ),
            ("9", 0, "hides all 8 | there is no module 9: only 0, 1, 2, 3, 4, 5, 6, 7"),
            ("a", 0, "hides all 8 | \"a\" is no module id"),
            ("0,", 1, "hides 7 of 8 | \"\" is no module id"),
            ("0,0", 1, "hides 7 of 8 | 0 is named twice"),
            ("-1", 0, "hides all 8 | \"-1\" is no module id"),
            ("all", 0, "hides all 8 | \"all\" is no module id"),
            ("99999999999", 0, "hides all 8 | \"99999999999\" is no module id"),
        ] {
            let (shown, rows) = outcome(None, Some(value));
            assert_eq!((shown.len(), rows), (visible, vec![text.to_owned()]), "{value:?}");
        }
        let (hidden, masks) = apply(&[(0, None), (1, Some(1))], None, Some("1"));
        assert_eq!(hidden, [None, None]);
        assert!(masks[0].effect.starts_with("not followed here"), "{masks:?}");
        let (hidden, masks) = apply(&[], Some("0"), Some("1"));
        assert_eq!(
            (hidden.len(), masks[1].effect.as_str(), &masks[1].error),
            (0, "there is no Gaudi to act on", &None)
        );
    }
}
