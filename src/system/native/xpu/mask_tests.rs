use super::Hierarchy::{Combined, Composite, Flat};
use super::{AffinityMask, Hierarchy, units};

/// Two cards of four tiles, as in the specification.
const CARDS: [u32; 2] = [4, 4];

/// What is visible: `(card, tiles, whether it is a tile)`, in the order of the devices.
fn visible(hierarchy: Hierarchy, cards: &[u32], mask: &str) -> Vec<(u32, Vec<u32>, bool)> {
    let mask = AffinityMask::read(mask);
    let units = units(hierarchy, cards, mask.as_ref());
    units.into_iter().filter(|unit| unit.visible).map(|unit| (unit.card, unit.tiles, unit.is_tile)).collect()
}

fn fault(hierarchy: Hierarchy, cards: &[u32], mask: &str) -> Option<String> {
    AffinityMask::read(mask).and_then(|mask| mask.fault(hierarchy, cards))
}

fn tiles(places: &[(u32, u32)]) -> Vec<(u32, Vec<u32>, bool)> {
    places.iter().map(|(card, tile)| (*card, vec![*tile], true)).collect()
}

#[test]
fn the_specifications_examples_in_composite() {
    let all = || vec![0, 1, 2, 3];
    for (mask, expected) in [
        ("0, 1", vec![(0, all(), false), (1, all(), false)]),
        ("0", vec![(0, all(), false)]),
        ("1", vec![(1, all(), false)]),
        ("0.0", tiles(&[(0, 0)])),
        ("1.1,1.2", vec![(1, vec![1, 2], false)]),
        // The order of the mask is ignored.
        ("0.2,1.3,1.0,0.3", vec![(0, vec![2, 3], false), (1, vec![0, 3], false)]),
        ("0.2, 1.3, 1.0, 0.3", vec![(0, vec![2, 3], false), (1, vec![0, 3], false)]),
    ] {
        assert_eq!(visible(Composite, &CARDS, mask), expected, "{mask}");
        assert_eq!(fault(Composite, &CARDS, mask), None, "{mask}");
    }
    // A card and one of its tiles is the card.
    assert_eq!(visible(Composite, &CARDS, "1.2,1"), [(1, all(), false)]);
}

#[test]
fn the_specifications_examples_in_flat_and_combined() {
    for hierarchy in [Flat, Combined] {
        for (mask, expected) in [
            ("0,1,2,3,4,5,6,7", tiles(&[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)])),
            ("0", tiles(&[(0, 0)])),
            ("1", tiles(&[(0, 1)])),
            ("0,4", tiles(&[(0, 0), (1, 0)])),
            ("4,0", tiles(&[(0, 0), (1, 0)])),
            ("1, 2, 7", tiles(&[(0, 1), (0, 2), (1, 3)])),
        ] {
            assert_eq!(visible(hierarchy, &CARDS, mask), expected, "{mask}");
            assert_eq!(fault(hierarchy, &CARDS, mask), None, "{mask}");
        }
        assert_eq!(visible(hierarchy, &CARDS, "0.0"), []);
        let text = fault(hierarchy, &CARDS, "0.0").unwrap();
        assert!(text.contains(&format!("\"0.0\" names a tile of a card, which is invalid in {hierarchy}")), "{text}");
        // The rest of a list still counts.
        assert_eq!(visible(hierarchy, &CARDS, "0.0,5"), tiles(&[(1, 1)]));
    }
}

#[test]
fn without_a_mask_everything_is_visible_and_numbered() {
    for unset in ["", "default"] {
        assert_eq!(AffinityMask::read(unset), None);
        assert_eq!(visible(Composite, &CARDS, unset).len(), 2);
        assert_eq!(visible(Flat, &CARDS, unset).len(), 8);
    }
    let mask = AffinityMask::read("6").unwrap();
    let units = units(Flat, &CARDS, Some(&mask));
    assert_eq!(units.iter().map(|unit| unit.unmasked_index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(units.iter().filter(|unit| unit.visible).map(|unit| unit.unmasked_index).collect::<Vec<_>>(), [6]);
    // Cards of different sizes, and of one tile, which is no tile of several.
    assert_eq!(visible(Flat, &[1, 2, 1], "0,2,3"), [(0, vec![0], false), (1, vec![1], true), (2, vec![0], false)]);
    assert_eq!(visible(Composite, &[1, 2, 1], "0.0,2"), [(0, vec![0], false), (2, vec![0], false)]);
    assert_eq!(visible(Composite, &[], "0"), []);
}

#[test]
fn what_is_not_there_hides_everything_else_and_is_said() {
    for (hierarchy, mask, text) in [
        (Composite, "9", "there is no device 9: only 0 to 1"),
        (Composite, "9.0", "there is no card 9: only 0 to 1"),
        (Composite, "0.4", "card 0 has no tile 4: only 0 to 3"),
        (Flat, "9", "there is no device 9: only 0 to 7"),
        (Composite, "-1", "\"-1\" is read as 4294967295; there is no device 4294967295: only 0 to 1"),
        (Composite, "0.1.0", "\"0.1.0\" names more than a card and a tile"),
    ] {
        assert_eq!(visible(hierarchy, &CARDS, mask), [], "{mask}");
        assert_eq!(fault(hierarchy, &CARDS, mask).as_deref(), Some(text));
        assert!(!AffinityMask::read(mask).unwrap().fatal(), "{mask}");
        // What is valid beside it still counts.
        let mask = format!("{mask},1");
        assert_eq!(visible(hierarchy, &CARDS, &mask).len(), 1, "{mask}");
    }
    assert_eq!(fault(Composite, &[2], "1").as_deref(), Some("there is no device 1: only 0"));
    assert_eq!(fault(Composite, &[], "1").as_deref(), Some("there is no device 1: there is none"));
}

#[test]
fn what_ends_a_process_is_known_and_hides_everything() {
    for mask in
        ["a", ",", ",0", "0,,1", "0,a", "0. ,1", ".0", ".", " ", "0.a", "0.1.2.3", "99999999999999999999", "-", "0,x1"]
    {
        let read = AffinityMask::read(mask).unwrap();
        assert!(read.fatal(), "{mask:?}");
        assert_eq!(visible(Composite, &CARDS, mask), [], "{mask:?}");
        assert!(read.fault(Composite, &CARDS).is_some(), "{mask:?}");
    }
    assert_eq!(fault(Composite, &CARDS, "a").as_deref(), Some("\"a\" is no number"));
    assert_eq!(fault(Composite, &CARDS, "0,,1").as_deref(), Some("an entry is empty"));
}

#[test]
fn what_the_driver_reads_in_its_own_way() {
    let whole = |card| vec![(card, vec![0, 1, 2, 3], false)];
    // A comma at the end, blanks, C's own ways to write numbers.
    for (mask, expected, text) in [
        ("1,", whole(1), None),
        (" 1 ", whole(1), None),
        ("0x1", whole(1), None),
        ("+1", whole(1), None),
        ("1.", whole(1), None),
        ("1,1", whole(1), Some("\"1\" is named twice, which changes nothing")),
        ("1.2,1.2", tiles(&[(1, 2)]), Some("\"1.2\" is named twice, which changes nothing")),
        ("1x", whole(1), Some("\"1x\" is read as 1")),
        ("1 0", whole(1), Some("\"1 0\" is read as 1")),
        ("1;0", whole(1), Some("\"1;0\" is read as 1")),
        ("4294967297", whole(1), Some("\"4294967297\" is read as 1")),
        ("0xg", whole(0), Some("\"0xg\" is read as 0")),
    ] {
        assert_eq!(visible(Composite, &CARDS, mask), expected, "{mask}");
        assert_eq!(fault(Composite, &CARDS, mask).as_deref(), text, "{mask}");
    }
    assert_eq!(visible(Flat, &[4, 8], "010"), tiles(&[(1, 4)]), "octal");
}

#[test]
fn a_mask_as_long_as_an_environment_is_read_at_once() {
    let text: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let clock = std::time::Instant::now();
    let mask = AffinityMask::read(&text.join(",")).unwrap();
    let told = mask.fault(Composite, &CARDS).unwrap();
    assert!(clock.elapsed() < std::time::Duration::from_secs(2), "{:?}", clock.elapsed());
    assert!(told.len() < 1_000, "{told}");
}

#[test]
fn hierarchies_are_read_to_the_letter() {
    assert_eq!(Hierarchy::from_setting("FLAT"), Some(Flat));
    assert_eq!(Hierarchy::from_setting("COMBINED"), Some(Combined));
    assert_eq!(Hierarchy::from_setting("COMPOSITE"), Some(Composite));
    assert_eq!(["flat", "", "FLAT ", "0"].map(Hierarchy::from_setting), [None; 4]);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_and_hides_devices_and_adds_none(
        text in "[0-9a-fxX.,+ -]{0,16}|\\PC{0,12}",
        cards in proptest::collection::vec(1_u32..9, 0..6),
    ) {
        for hierarchy in [Composite, Flat, Combined] {
            let Some(mask) = AffinityMask::read(&text) else { continue };
            let masked = units(hierarchy, &cards, Some(&mask));
            let all = units(hierarchy, &cards, None);
            proptest::prop_assert_eq!(masked.len(), all.len());
            for (masked, all) in masked.iter().zip(&all) {
                proptest::prop_assert_eq!((masked.card, masked.unmasked_index), (all.card, all.unmasked_index));
                proptest::prop_assert!(masked.tiles.iter().all(|tile| all.tiles.contains(tile)) && !masked.tiles.is_empty());
            }
            let visible = masked.iter().filter(|unit| unit.visible).count();
            proptest::prop_assert!(!mask.fatal() || visible == 0);
            // Nothing is hidden from everyone without a word, unless there is nothing.
            proptest::prop_assert!(visible > 0 || mask.fault(hierarchy, &cards).is_some());
        }
    }
}
