//! The size of the last-level cache.

use std::fs;
use std::sync::OnceLock;

/// Returns the bytes of the last-level cache of a core; 0 if unknown.
pub(crate) fn last_level_cache_bytes() -> u64 {
    // Asked once, because every answer reads files of the system.
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
        let sizes = caches.filter_map(|cache| parse_size(&fs::read_to_string(cache.path().join("size")).ok()?));
        sizes.max().unwrap_or(0)
    })
}

/// Parses a size as the system writes it, such as `32768K`.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last()? {
        (end, 'K') => (&text[..end], 1 << 10),
        (end, 'M') => (&text[..end], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("32768K\n"), Some(32 << 20));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!(parse_size("512"), Some(512));
        for text in ["", "K", "x", "99999999999999999999K", "18446744073709551615M"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
