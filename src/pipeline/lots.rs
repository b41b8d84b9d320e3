//! Lots: the ranges of rows that one worker claims as a whole, because it takes long to read some rows of a grain
//! ([`Source::grains`](crate::Source::grains)) without those before.

/// Returns the first rows of lots, except of the first one; `None` if no input has grains. `grains` has the first rows
/// of the grains of each input that has any.
///
/// Grains of several inputs are joined until they begin at the same row. If they never do, the input with the longest
/// grains counts: those of the others are begun in the middle at times. Lots are whole tiles, so that the last tile of
/// a lot may end in the next grain, and have at least a chunk.
pub(crate) fn lots(grains: &[Vec<u64>], tile_rows: u64, chunk_rows: u64) -> Option<Vec<u64>> {
    let longest = grains.iter().min_by_key(|grains| grains.len())?;
    let is_common = |first: &u64| grains.iter().all(|own| own.binary_search(first).is_ok());
    let common: Vec<u64> = longest.iter().copied().filter(is_common).collect();
    let firsts = if common.len() > 1 { &common } else { longest };
    let mut lots = Vec::new();
    let mut begin = 0;
    for first in firsts.iter().map(|first| first.next_multiple_of(tile_rows)) {
        if first >= begin + chunk_rows {
            lots.push(first);
            begin = first;
        }
    }
    Some(lots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lot_is_whole_tiles_and_at_least_a_chunk() {
        let lots = |grains: &[u64], tile| lots(&[grains.to_vec()], tile, 256);
        assert_eq!(lots(&[0, 1000, 2000, 3000], 256), Some(vec![1024, 2048, 3072]));
        assert_eq!(lots(&[0, 100, 200, 300, 700], 64), Some(vec![256, 704]));
        assert_eq!((lots(&[0], 64), super::lots(&[], 64, 256)), (Some(vec![]), None), "all rows are one lot, or none");
    }

    #[test]
    fn grains_of_several_inputs_are_joined() {
        let each = [vec![0, 200, 400, 600, 800], vec![0, 300, 600, 900]];
        assert_eq!(lots(&each, 1, 1), Some(vec![600]));
        let never = [vec![0, 200, 400, 600], vec![0, 301, 602]];
        assert_eq!(lots(&never, 1, 1), Some(vec![301, 602]));
    }
}
