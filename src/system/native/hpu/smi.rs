//! `hl-smi`: which module each index is.
//!
//! `hl-smi -Q index,module_id -f csv` prints a head `index, module_id` and a row for each device, in no order; with
//! `csv,noheader` it leaves the head out. Source: "Multiple Dockers Each with a Single Workload" of the Gaudi
//! documentation.

use std::collections::BTreeMap;

use crate::system::command::{self, CommandError};
use crate::system::environment::Environment;
use crate::system::native::list::quoted;

const COMMAND: &str = "hl-smi";

/// The module of each index; `None` where the command does not know it. `Err` is a sentence.
pub(super) fn modules(environment: &Environment) -> Result<BTreeMap<u32, Option<u32>>, String> {
    let arguments = ["-Q", "index,module_id", "-f", "csv"];
    match command::run(environment, COMMAND, &arguments, command::TIME_LIMIT) {
        Ok(output) => parse(&output),
        Err(CommandError::NotFound { .. }) => {
            Err("hl-smi is in no folder of PATH: install habanalabs-firmware-tools".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn parse(output: &str) -> Result<BTreeMap<u32, Option<u32>>, String> {
    let mut found = BTreeMap::new();
    for (at, line) in output.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let fault = |what: &str| Err(format!("hl-smi printed {what}: {}", quoted(line)));
        let Some((index, module)) = line.split_once(',').map(|(index, module)| (index.trim(), module.trim())) else {
            return fault("a line that is no row of index, module_id");
        };
        if at == 0 && (index, module) == ("index", "module_id") {
            continue;
        }
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
        let unknown = module.eq_ignore_ascii_case("N/A");
        let (Some(index), Some(module)) = (number(index), if unknown { Some(None) } else { number(module).map(Some) })
        else {
            return fault("a line that is no row of index, module_id");
        };
        if module.is_some() && found.values().any(|known| *known == module) {
            return fault("a module twice");
        }
        if found.insert(index, module).is_some() {
            return fault("an index twice");
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn rows_come_in_any_order_with_or_without_a_head() {
        let expected = [(0, 5), (1, 4), (3, 2)].map(|(index, module)| (index, Some(module)));
        let rows = "3, 2\n1, 4\n0, 5\n";
        for output in [
            rows.to_owned(),
            format!("index, module_id\n{rows}"),
            format!("index, module_id\r\n\n{}", rows.replace('\n', "\r\n")),
        ] {
            assert_eq!(parse(&output).unwrap().into_iter().collect::<Vec<_>>(), expected, "{output:?}");
        }
        assert_eq!(parse("").unwrap().len(), 0);
        assert_eq!(parse("0, N/A").unwrap()[&0], None);
    }

    #[test]
    fn what_is_no_such_table_is_an_error() {
        for (bad, text) in [
            ("No devices found", "no row"),
            ("0, 1\nindex, module_id", "no row"),
            ("0, -1", "no row"),
            ("0", "no row"),
            ("0, 1, 2", "no row"),
            (", ", "no row"),
            ("0, 99999999999", "no row"),
            ("0, 1\n0, 2", "an index twice"),
            ("0, 1\n1, 1", "a module twice"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(text), "{bad:?}: {error}");
        }
    }
}
