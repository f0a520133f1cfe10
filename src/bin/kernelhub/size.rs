//! Sizes for people.

/// A number of bytes in binary units, with the exact number: `1.5 MiB (1572864 bytes)`.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = None;
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(next);
    }
    match unit {
        None => format!("{bytes} bytes"),
        Some(unit) => format!("{value:.1} {unit} ({bytes} bytes)"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn units_are_binary_and_the_number_is_exact() {
        assert_eq!(human(0), "0 bytes");
        assert_eq!(human(1023), "1023 bytes");
        assert_eq!(human(1024), "1.0 KiB (1024 bytes)");
        assert_eq!(human(1_572_864), "1.5 MiB (1572864 bytes)");
        assert_eq!(human(u64::MAX), "16777216.0 TiB (18446744073709551615 bytes)");
    }
}
