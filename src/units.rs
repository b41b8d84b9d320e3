//! Formats numbers and names for people, in the same way in the library and the command. This module is not part of the
//! API: it may change with any release.
//!
//! - Amounts of data and rates are decimal: `16.0 MB`, `1.3 GB/s`. Rates have one unit, so that two of them compare
//!   at a glance.
//! - Amounts of memory are binary, as are the limits that users set on memory: `64.0 MiB`.
//! - Numbers of rows have separators: `2,000,000`.
//! - Times have a suitable unit: `850 µs`, `13 ms`, `2.79 s`, `2 min 39 s`.

use std::time::Duration;

/// Returns text with its control characters escaped. Names of files may contain line breaks and the escape sequences of
/// terminals.
pub fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Formats a number with separators: `2,000,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the lengths of the dimensions of an array as NumPy does: `(10000, 200)`, `(5,)`.
pub fn shape(lengths: &[u64]) -> String {
    match lengths {
        [one] => format!("({one},)"),
        all => format!("({})", all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Formats a number of things: `1 row`, `2,000,000 rows`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats an amount of data: `999 B`, `16.0 MB`.
pub fn bytes(number: u64) -> String {
    if number < 1000 {
        return format!("{number} B");
    }
    let mut value = number as f64;
    let mut unit = "";
    for next in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        (value, unit) = (value / 1000.0, next);
        // A value that would be rounded to 1000.0 gets the next unit.
        if value < 999.95 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

/// Formats an amount of memory: `64.0 MiB`.
pub fn memory(number: u64) -> String {
    bytesize::ByteSize(number).display().iec().to_string()
}

/// Formats bytes per second, always in GB/s: `104 GB/s`, `1.3 GB/s`, `0.052 GB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{} GB/s", gigabytes(bytes_per_second))
}

/// Formats bytes per second in GB/s, without the unit: at most three digits, and at least two after leading zeros.
pub fn gigabytes(bytes_per_second: f64) -> String {
    let value = bytes_per_second / 1e9;
    let digits = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 1.0 => 1,
        _ if value >= 0.1 => 2,
        _ if value >= 0.01 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Formats a time: `850 µs`, `3.6 ms`, `2.79 s`, `2 min 39 s`, `3 h 5 min`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    // Each unit ends where its numbers would be rounded up to the next one.
    match seconds {
        0.0 => "0 s".into(),
        _ if seconds < 0.999_5e-3 => format!("{:.0} µs", (seconds * 1e6).max(1.0)),
        _ if seconds < 9.95e-3 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 0.999_5 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 9.995 => format!("{seconds:.2} s"),
        _ if seconds < 59.95 => format!("{seconds:.1} s"),
        _ => {
            let whole = seconds.round() as u64;
            match (whole / 3600, whole / 60 % 60, whole % 60) {
                (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
                (hours, minutes, _) => format!("{hours} h {minutes} min"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        let texts = [0, 999, 1000, 134_217_728, u64::MAX].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "134,217,728", "18,446,744,073,709,551,615"]);
        assert_eq!([0, 1, 1000].map(|rows| counted(rows, "row")), ["0 rows", "1 row", "1,000 rows"]);
    }

    #[test]
    fn shapes_are_those_of_numpy() {
        assert_eq!([&[][..], &[5], &[10_000, 200]].map(shape), ["()", "(5,)", "(10000, 200)"]);
    }

    #[test]
    fn data_is_decimal_and_memory_binary() {
        let texts = [0, 999, 1000, 16_000_000, 999_949_999, 999_950_000, u64::MAX].map(bytes);
        assert_eq!(texts, ["0 B", "999 B", "1.0 kB", "16.0 MB", "999.9 MB", "1.0 GB", "18.4 EB"]);
        assert_eq!(memory(64 << 20), "64.0 MiB");
    }

    #[test]
    fn rates_have_one_unit() {
        let texts = [104.4e9, 99.94e9, 1.26e9, 0.52e9, 52e6, 5.2e6, 0.0].map(rate);
        let expected = ["104 GB/s", "99.9 GB/s", "1.3 GB/s", "0.52 GB/s", "0.052 GB/s", "0.0052 GB/s", "0.0000 GB/s"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let texts = [0.0, 1e-9, 850e-6, 3.6e-3, 0.013, 0.9994, 0.9999, 2.787, 59.94, 59.96, 159.0, 11_100.0];
        let texts = texts.map(|seconds| time(Duration::from_secs_f64(seconds)));
        let expected = [
            "0 s",
            "1 µs",
            "850 µs",
            "3.6 ms",
            "13 ms",
            "999 ms",
            "1.00 s",
            "2.79 s",
            "59.9 s",
            "1 min 0 s",
            "2 min 39 s",
            "3 h 5 min",
        ];
        assert_eq!(texts, expected);
    }
}
