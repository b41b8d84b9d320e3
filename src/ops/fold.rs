//! Combines the partial results of tiles in a fixed tree, independently of the order in which they arrive, and adds the
//! words of chunks.
//!
//! The tree is a binary tree over tile numbers: node (level, index) covers the tiles from `index << level` to
//! `(index + 1) << level`. Its state is that of its left half combined with that of its right half. Siblings are
//! combined as soon as both have arrived, so only a few nodes per gap are stored, never all partials. The order of
//! operations depends only on the number of tiles.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A node with its state.
type Node = (Place, Box<[u64]>);

/// Combines the halves of a node. Returns it and the memory of the right half.
fn join([(place, mut left), (_, right)]: [Node; 2], how: &(impl Combine + ?Sized)) -> (Node, Box<[u64]>) {
    how.combine(&mut left, &right);
    ((parent(place), left), right)
}

/// The node of which this one is a half.
fn parent((level, index): Place) -> Place {
    (level + 1, index >> 1)
}

/// Whether two nodes are the halves of one, of which the first is the left one.
fn are_siblings((level, index): Place, right: Place) -> bool {
    index & 1 == 0 && right == (level, index + 1)
}

/// Builds the nodes of these states of adjacent tiles, level by level: states are so small that the loop over a level
/// takes less time than a call for each.
fn by_levels(first_tile: u64, states: &[u64], how: &(impl Combine + ?Sized)) -> Vec<Node> {
    let words = how.words();
    let mut states = states.to_vec();
    let (mut nodes, mut rest, mut index) = (vec![], &mut states[..], first_tile);
    for level in 0.. {
        if index & 1 == 1 {
            // A right half, whose left one is in another chunk.
            let Some(own) = rest.split_off_mut(..words) else { break };
            nodes.push(((level, index), (&*own).into()));
            index += 1;
        }
        let count = rest.len() / words;
        if count & 1 == 1 {
            // A left half, whose right one is in another chunk.
            let Some(own) = rest.split_off_mut((count - 1) * words..) else { break };
            nodes.push(((level, index + count as u64 - 1), (&*own).into()));
        }
        if count < 2 {
            break;
        }
        how.combine_pairs(rest);
        let halves = rest.len() / 2;
        rest = rest.split_off_mut(..halves).unwrap_or_default();
        index >>= 1;
    }
    nodes
}

/// How states are combined.
pub(crate) trait Combine {
    /// The number of words of a state.
    fn words(&self) -> usize;
    /// Combines `left` with `right`, whose rows follow those of `left`, and stores the result in `left`.
    fn combine(&self, left: &mut [u64], right: &[u64]);
    /// Combines the first state with the second one, the third with the fourth, and so on, and stores the results one
    /// behind the other, from the first place on.
    fn combine_pairs(&self, states: &mut [u64]) {
        let words = self.words();
        for pair in 0..states.len() / words / 2 {
            let (left, right) = states[2 * pair * words..][..2 * words].split_at_mut(words);
            self.combine(left, right);
            states.copy_within(2 * pair * words..(2 * pair + 1) * words, pair * words);
        }
    }
    /// The number of words of a chunk.
    fn chunk_words(&self) -> usize {
        0
    }
    /// Adds the words of a chunk. The order of additions does not matter.
    fn add(&self, _sums: &mut [u64], _words: &[u64]) {}
}

/// A level and an index.
pub(crate) type Place = (u32, u64);

/// Returns the most nodes of a tree of so many tiles, as long as at most so many chunks are claimed and not absorbed.
/// The tiles that have nodes are in ranges between gaps. A gap is a chunk that is claimed, or what a worker has left of
/// the rows that it claimed as a whole. A chunk that is being absorbed has nodes that are not in the tree yet.
pub(crate) fn most_nodes(tiles: u64, chunks: u64) -> u64 {
    let ranges = 3 * chunks + 1;
    // A range of tiles has two nodes of each level at most.
    let of_range = tiles.div_ceil(ranges).max(1).ilog2() as u64 + 1;
    tiles.min(ranges.saturating_mul(2 * of_range))
}

/// The nodes of the tree whose siblings have not arrived yet, and the sums of the words of chunks.
#[derive(Clone, Default)]
pub(crate) struct Fold {
    nodes: BTreeMap<Place, Box<[u64]>>,
    /// Empty without chunks.
    sums: Vec<u64>,
    /// The words of tiles that are kept as they are, by the number of the first tile of a chunk.
    kept: BTreeMap<u64, Vec<u64>>,
}

impl Fold {
    /// Builds the nodes of a chunk from the states of its tiles, in order, each of which has `tile_rows` rows.
    #[cfg(test)]
    pub(crate) fn of_tiles(
        rows: (u64, usize),
        tile_rows: usize,
        states: &[u64],
        how: &(impl Combine + ?Sized),
    ) -> Fold {
        Fold::of_tiles_in(&Spare::default(), rows, tile_rows, states, how)
    }

    /// Builds the nodes of a chunk from the states of its tiles, in order, each of which has `tile_rows` rows: in
    /// memory of other nodes, as far as there is some.
    fn of_tiles_in(
        spare: &Spare,
        (first_row, rows): (u64, usize),
        tile_rows: usize,
        states: &[u64],
        how: &(impl Combine + ?Sized),
    ) -> Fold {
        let (words, tile) = (how.words(), tile_rows as u64);
        debug_assert!(first_row.is_multiple_of(tile) && states.len() == rows.div_ceil(tile_rows) * words);
        if words < LARGE {
            return Fold::of_nodes(by_levels(first_row / tile, states, how));
        }
        // The nodes so far, from left to right. States of wide rows are large: one on the right of another is combined
        // where the kernel has left it, and the memory of a node is used again.
        let mut nodes: Vec<Node> = vec![];
        for (index, state) in (first_row / tile..).zip(states.chunks_exact(words)) {
            match nodes.last_mut() {
                Some((place, left)) if are_siblings(*place, (0, index)) => {
                    how.combine(left, state);
                    *place = parent(*place);
                }
                _ => {
                    let node = spare.take(state.len()).map(|mut node| {
                        node.copy_from_slice(state);
                        node
                    });
                    nodes.push(((0, index), node.unwrap_or_else(|| state.into())));
                }
            }
            while let [.., (left, into), (right, from)] = &mut nodes[..]
                && are_siblings(*left, *right)
            {
                how.combine(into, from);
                *left = parent(*left);
                nodes.pop().into_iter().for_each(|(_, state)| spare.keep(state));
            }
        }
        Fold::of_nodes(nodes)
    }

    /// Creates a tree of nodes: their levels, their indices and their states.
    pub(crate) fn of_nodes(nodes: impl IntoIterator<Item = (Place, Box<[u64]>)>) -> Fold {
        Fold { nodes: nodes.into_iter().collect(), ..Fold::default() }
    }

    /// Adds the words of chunks; none if there are no chunks.
    pub(crate) fn add(&mut self, words: &[u64], how: &(impl Combine + ?Sized)) {
        if words.is_empty() {
            return;
        }
        debug_assert!(words.len() == how.chunk_words());
        self.sums.resize(words.len(), 0);
        how.add(&mut self.sums, words);
    }

    /// Returns the sums of the words of chunks; empty without chunks.
    pub(crate) fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Keeps words of the tiles from this one on.
    fn keep(&mut self, first_tile: u64, words: Vec<u64>) {
        self.kept.insert(first_tile, words);
    }

    /// Returns the words of all tiles that are kept as they are, in the order of tiles.
    pub(crate) fn kept(&self) -> Vec<u64> {
        self.kept.values().flatten().copied().collect()
    }

    /// Returns the nodes: their levels, their indices and their states.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Place, &[u64])> {
        self.nodes.iter().map(|(place, state)| (*place, &**state))
    }

    /// Adds the nodes of another part.
    pub(crate) fn merge(&mut self, other: Fold, how: &(impl Combine + ?Sized)) {
        self.add(&other.sums, how);
        self.kept.extend(other.kept);
        for mut node in other.nodes {
            while let Some(halves) = self.insert(node) {
                (node, _) = join(halves, how);
            }
        }
    }

    /// Inserts a node, or returns it and its sibling, which is removed, if that has arrived. Their parent is to be
    /// inserted then.
    fn insert(&mut self, node: Node) -> Option<[Node; 2]> {
        let (level, index) = node.0;
        let place = (level, index ^ 1);
        match self.nodes.remove(&place) {
            Some(left) if are_siblings(place, node.0) => Some([(place, left), node]),
            Some(right) => Some([node, (place, right)]),
            None => {
                self.nodes.insert(node.0, node.1);
                None
            }
        }
    }

    /// The state of all tiles; `None` without tiles.
    pub(crate) fn finish(&self, how: &(impl Combine + ?Sized)) -> Option<Cow<'_, [u64]>> {
        // When all tiles have arrived, each level has at most one node, and larger nodes cover earlier tiles.
        let mut states = self.nodes.values().rev().map(|state| &**state);
        let first = Cow::Borrowed(states.next()?);
        Some(states.fold(first, |mut left, right| {
            how.combine(left.to_mut(), right);
            left
        }))
    }
}

/// States of so many words are large: their memory is used again, because new memory takes longer than to combine them.
const LARGE: usize = 512;

/// Memory of large nodes that were combined with others. A thread takes no more than it needs now, so that there is
/// never more than nodes were there at once.
#[derive(Default)]
struct Spare(Mutex<Vec<Box<[u64]>>>);

impl Spare {
    /// Returns memory for a node of so many words, if there is some.
    fn take(&self, words: usize) -> Option<Box<[u64]>> {
        if words < LARGE {
            return None;
        }
        lock(&self.0).pop().filter(|spare| spare.len() == words)
    }

    /// Keeps the memory of a node, if it is large.
    fn keep(&self, node: Box<[u64]>) {
        if node.len() >= LARGE {
            lock(&self.0).push(node);
        }
    }
}

/// A tree to which several threads add nodes.
#[derive(Default)]
pub(crate) struct SharedFold {
    nodes: Mutex<Fold>,
    spare: Spare,
    /// Sums of the words of chunks, which no thread adds to now. There are as many as threads have added at once:
    /// thousands of words take as long to add as a chunk to transfer.
    sums: Mutex<Vec<Vec<u64>>>,
}

impl SharedFold {
    /// Adds the states of the tiles of a chunk, in order, each of which has `tile_rows` rows. Other threads add theirs
    /// meanwhile: states of wide rows take long to combine.
    pub(crate) fn add_tiles(
        &self,
        (first_row, rows): (u64, usize),
        tile_rows: usize,
        states: &[u64],
        how: &(impl Combine + ?Sized),
    ) {
        let is_large = how.words() >= LARGE;
        let index = first_row / tile_rows as u64;
        if is_large && states.len() == how.words() && index & 1 == 1 {
            // It is combined where the kernel has left it, if its left sibling waits.
            let place = (0, index - 1);
            let waiting = lock(&self.nodes).nodes.remove(&place);
            if let Some(mut left) = waiting {
                how.combine(&mut left, states);
                return self.insert((parent(place), left), how);
            }
        }
        let nodes = Fold::of_tiles_in(&self.spare, (first_row, rows), tile_rows, states, how).nodes;
        nodes.into_iter().for_each(|node| self.insert(node, how));
    }

    /// Adds ranges of tiles, each tile with this state, and the words of as many chunks.
    pub(crate) fn add_alike(&self, tiles: &[Range<u64>], state: &[u64], words: &[u64], how: &(impl Combine + ?Sized)) {
        // The states of nodes of all levels so far.
        let mut states = vec![Box::<[u64]>::from(state)];
        for tiles in tiles.iter().filter(|_| how.words() > 0) {
            let mut next = tiles.start;
            while next < tiles.end {
                // The largest node that begins there and ends in time.
                let level = next.trailing_zeros().min((tiles.end - next).ilog2()) as usize;
                while states.len() <= level {
                    let half = &states[states.len() - 1];
                    let mut double = half.clone();
                    how.combine(&mut double, half);
                    states.push(double);
                }
                self.add_node((level as u32, next >> level), states[level].clone(), how);
                next += 1 << level;
            }
        }
        let mut left: u64 = tiles.iter().map(|tiles| tiles.end - tiles.start).sum();
        let mut sums = words.to_vec();
        while left > 0 && !words.is_empty() {
            if left & 1 == 1 {
                self.add(&sums, how);
            }
            left >>= 1;
            if left > 0 {
                let one = sums.clone();
                how.add(&mut sums, &one);
            }
        }
    }

    /// Inserts a node, and combines it with its sibling, if that has arrived, and so on.
    fn insert(&self, mut node: Node, how: &(impl Combine + ?Sized)) {
        loop {
            let halves = lock(&self.nodes).insert(node);
            let Some(halves) = halves else { break };
            let right;
            (node, right) = join(halves, how);
            self.spare.keep(right);
        }
    }

    /// Returns memory for the state of a node, of so many words: that of a node that is gone, if there is one.
    pub(crate) fn memory(&self, words: usize) -> Box<[u64]> {
        self.spare.take(words).unwrap_or_else(|| vec![0; words].into())
    }

    /// Adds a node with its state.
    pub(crate) fn add_node(&self, node: Place, state: Box<[u64]>, how: &(impl Combine + ?Sized)) {
        self.insert((node, state), how);
    }

    /// Adds the words of chunks, as [`Fold::add`].
    pub(crate) fn add(&self, words: &[u64], how: &(impl Combine + ?Sized)) {
        if words.is_empty() {
            return;
        }
        let free = lock(&self.sums).pop();
        let mut own = Fold { sums: free.unwrap_or_default(), ..Fold::default() };
        own.add(words, how);
        lock(&self.sums).push(own.sums);
    }

    /// Keeps words of the tiles from this one on, as they are.
    pub(crate) fn keep(&self, first_tile: u64, words: Vec<u64>) {
        lock(&self.nodes).keep(first_tile, words);
    }

    /// Removes all nodes, sums and words.
    pub(crate) fn clear(&self) {
        *lock(&self.nodes) = Fold::default();
        lock(&self.sums).clear();
    }

    /// Returns the tree, with the sums of all threads. No thread is adding nodes.
    pub(crate) fn get(&self, how: &(impl Combine + ?Sized)) -> MutexGuard<'_, Fold> {
        let mut all = lock(&self.nodes);
        lock(&self.sums).drain(..).for_each(|sums| all.add(&sums, how));
        all
    }
}

/// Every change is complete before anything can panic.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kernel::TILE_ROWS;
    use proptest::prelude::*;

    /// Sums of floats: another order would change the bits.
    struct Sum;

    impl Combine for Sum {
        fn words(&self) -> usize {
            1
        }
        fn combine(&self, left: &mut [u64], right: &[u64]) {
            left[0] = (f64::from_bits(left[0]) + f64::from_bits(right[0])).to_bits();
        }
    }

    /// The definition of a full tree, from the root down.
    fn naive_full(tiles: &[f64]) -> f64 {
        match tiles {
            [one] => *one,
            _ => naive_full(&tiles[..tiles.len() / 2]) + naive_full(&tiles[tiles.len() / 2..]),
        }
    }
    fn fold(tiles: &[f64], cuts: &[usize], order: &[usize]) -> f64 {
        let mut bounds: Vec<usize> = cuts.iter().map(|c| c % (tiles.len() + 1)).chain([0, tiles.len()]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut chunks: Vec<(usize, &[usize])> = bounds.windows(2).enumerate().collect();
        chunks.sort_by_key(|(k, _)| order.get(*k).copied().unwrap_or(0));
        let mut all = Fold::default();
        for (_, bound) in chunks {
            let part = &tiles[bound[0]..bound[1]];
            let first_row = (bound[0] * TILE_ROWS) as u64;
            let rows = (first_row, part.len() * TILE_ROWS);
            let nodes = Fold::of_tiles(rows, TILE_ROWS, bytemuck::cast_slice(part), &Sum);
            all.merge(nodes, &Sum);
        }
        f64::from_bits(all.finish(&Sum).unwrap()[0])
    }

    proptest! {
        #[test]
        fn the_order_and_the_cuts_do_not_show(
            tiles in prop::collection::vec(-1e9..1e9f64, 1..200),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
            order in prop::collection::vec(any::<usize>(), 22),
        ) {
            prop_assert_eq!(fold(&tiles, &cuts, &order).to_bits(), fold(&tiles, &[], &[]).to_bits());
        }
    }

    #[test]
    fn a_power_of_two_is_the_balanced_tree() {
        let tiles: Vec<f64> = (0..64).map(|k| 1.0 / (k as f64 + 0.3)).collect();
        assert_eq!(fold(&tiles, &[7, 13], &[2, 0, 1]).to_bits(), naive_full(&tiles).to_bits());
    }

    /// Exact, but neither commutative nor associative: another tree would change the result.
    struct Shape;

    impl Combine for Shape {
        fn words(&self) -> usize {
            1
        }
        fn combine(&self, left: &mut [u64], right: &[u64]) {
            left[0] = left[0].wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_add(right[0]) ^ 0x5555;
        }
    }

    /// The definition for any number of tiles: full trees of powers of two, the largest first, from left to right.
    fn shape(tiles: &[u64]) -> u64 {
        let combine = |left: u64, right: u64| {
            let mut left = [left];
            Shape.combine(&mut left, &[right]);
            left[0]
        };
        let half = match tiles.len() {
            1 => return tiles[0],
            count if count.is_power_of_two() => count / 2,
            count => {
                let mut trees = Vec::new();
                let mut rest = tiles;
                for power in (0..=count.ilog2()).rev().filter(|power| count >> power & 1 == 1) {
                    let (tree, others) = rest.split_at(1 << power);
                    trees.push(shape(tree));
                    rest = others;
                }
                return trees.into_iter().reduce(combine).unwrap();
            }
        };
        combine(shape(&tiles[..half]), shape(&tiles[half..]))
    }

    #[test]
    fn any_number_of_tiles_has_the_tree_of_its_definition() {
        for count in 1..130 {
            let tiles: Vec<u64> = (1..=count).collect();
            for step in [1, 3, 7, 64] {
                let mut all = Fold::default();
                // A few tiles at a time, in another order.
                let starts: Vec<u64> = (0..count).step_by(step as usize).collect();
                for &start in starts.iter().skip(1).rev().chain(&starts[..1]) {
                    let part = &tiles[start as usize..(start + step).min(count) as usize];
                    // The rows of a tile do not matter.
                    let rows = (start * 3, part.len() * 3);
                    all.merge(Fold::of_tiles(rows, 3, part, &Shape), &Shape);
                }
                assert_eq!(all.finish(&Shape).unwrap()[0], shape(&tiles), "{count} tiles, {step} at a time");
            }
        }
    }

    proptest! {
        #[test]
        fn a_tree_has_no_more_nodes_than_it_may(
            tiles in 1u64..5000, chunk in 1u64..40, under_way in 1usize..20, seed in any::<u64>(),
        ) {
            let (fold, mut claimed, mut state) = (SharedFold::default(), vec![], seed | 1);
            let mut next = 0;
            let most = most_nodes(tiles, under_way as u64);
            while next < tiles || !claimed.is_empty() {
                if next < tiles && claimed.len() < under_way {
                    claimed.push(next..tiles.min(next + chunk));
                    next = tiles.min(next + chunk);
                    continue;
                }
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // The oldest ones wait for long, so that there are gaps.
                let which = (state >> 33) as usize % claimed.len();
                let own = claimed.swap_remove(which.max(claimed.len() / 2));
                let states = vec![1; (own.end - own.start) as usize];
                fold.add_tiles((own.start, states.len()), 1, &states, &Shape);
                let nodes = lock(&fold.nodes).nodes.len() as u64;
                prop_assert!(nodes <= most, "{} nodes, at most {}", nodes, most);
            }
        }
    }

    #[test]
    fn threads_that_add_at_once_have_the_same_tree() {
        let states: Vec<u64> = (1..=1000).collect();
        for part in [1, 3, 8] {
            let all = SharedFold::default();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (all, states) = (&all, &states);
                    scope.spawn(move || {
                        for start in (thread * part..states.len()).step_by(4 * part) {
                            let own = &states[start..states.len().min(start + part)];
                            all.add_tiles((start as u64, own.len()), 1, own, &Shape);
                        }
                    });
                }
            });
            assert_eq!(all.get(&Shape).finish(&Shape).unwrap()[0], shape(&states), "{part} tiles at a time");
        }
    }

    /// The shape of the tree, and words of chunks that are added.
    struct Both;

    impl Combine for Both {
        fn words(&self) -> usize {
            1
        }
        fn combine(&self, left: &mut [u64], right: &[u64]) {
            Shape.combine(left, right);
        }
        fn chunk_words(&self) -> usize {
            2
        }
        fn add(&self, sums: &mut [u64], words: &[u64]) {
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
    }

    #[test]
    fn tiles_that_are_alike_have_the_same_tree() {
        for (count, alike) in (1..70)
            .flat_map(|count| (0..count).map(move |begin| (count, begin)))
            .flat_map(|(count, begin)| (begin + 1..=count).map(move |end| (count, begin..end)))
        {
            let tiles: Vec<u64> = (0..count).map(|tile| if alike.contains(&tile) { 3 } else { tile + 10 }).collect();
            let all = SharedFold::default();
            let middle = u64::midpoint(alike.start, alike.end);
            all.add_alike(&[alike.start..middle, middle..alike.end], &[3], &[5, 7], &Both);
            for tile in (0..count).filter(|tile| !alike.contains(tile)) {
                all.add_tiles((tile, 1), 1, &[tile + 10], &Both);
                all.add(&[5, 7], &Both);
            }
            let all = all.get(&Both);
            assert_eq!(all.sums(), [5 * count, 7 * count]);
            assert_eq!(all.finish(&Both).unwrap()[0], shape(&tiles), "{alike:?} of {count}");
        }
    }

    /// The same for each of many columns.
    struct Shapes;

    impl Combine for Shapes {
        fn words(&self) -> usize {
            LARGE
        }
        fn combine(&self, left: &mut [u64], right: &[u64]) {
            left.iter_mut().zip(right).for_each(|(left, right)| {
                let mut one = [*left];
                Shape.combine(&mut one, &[*right]);
                *left = one[0];
            });
        }
    }

    #[test]
    fn large_states_have_the_same_tree_and_little_memory() {
        let count = 301_usize;
        let state = |tile: usize| (0..LARGE as u64).map(move |column| (tile as u64 + 1) * (column + 1));
        let expected: Vec<u64> = (0..LARGE as u64)
            .map(|column| shape(&(0..count as u64).map(|tile| (tile + 1) * (column + 1)).collect::<Vec<_>>()))
            .collect();
        for (threads, part) in [(1, 1), (4, 1), (4, 2), (3, 5)] {
            let all = SharedFold::default();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let all = &all;
                    scope.spawn(move || {
                        for start in (thread * part..count).step_by(threads * part).rev() {
                            let own: Vec<u64> = (start..count.min(start + part)).flat_map(state).collect();
                            all.add_tiles((start as u64, own.len() / LARGE), 1, &own, &Shapes);
                        }
                    });
                }
            });
            assert!(*all.get(&Shapes).finish(&Shapes).unwrap() == expected[..], "{part} at a time");
        }
        // In their order, few nodes are there at once, and so there is memory of few.
        let all = SharedFold::default();
        (0..count).for_each(|tile| all.add_tiles((tile as u64, 1), 1, &state(tile).collect::<Vec<_>>(), &Shapes));
        let memory = |all: &SharedFold| lock(&all.nodes).nodes.len() + lock(&all.spare.0).len();
        assert!(memory(&all) <= 10, "memory of nodes is used again");
        // So it is with several tiles at a time, wherever their nodes begin.
        for part in [2, 7, 16] {
            let all = SharedFold::default();
            for start in (1..20 * count).step_by(part) {
                let own: Vec<u64> = (start..start + part).flat_map(state).collect();
                all.add_tiles((start as u64, part), 1, &own, &Shapes);
            }
            assert!(memory(&all) <= 30, "{} nodes of memory, {part} tiles at a time", memory(&all));
        }
    }

    /// Adds words one by one.
    struct Counts;

    impl Combine for Counts {
        fn words(&self) -> usize {
            0
        }
        fn combine(&self, _: &mut [u64], _: &[u64]) {}
        fn chunk_words(&self) -> usize {
            3
        }
        fn add(&self, sums: &mut [u64], words: &[u64]) {
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
        }
    }

    #[test]
    fn threads_that_add_words_at_once_lose_none() {
        let all = SharedFold::default();
        assert!(all.get(&Counts).sums().is_empty());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let all = &all;
                scope.spawn(move || (0..1000).for_each(|word| all.add(&[1, thread, word], &Counts)));
            }
        });
        assert_eq!(all.get(&Counts).sums(), [4000, 6000, 4 * 499_500]);
        assert!(lock(&all.sums).len() <= 4);
        all.clear();
        assert!(all.get(&Counts).sums().is_empty());
    }

    #[test]
    fn memory_stays_small_when_chunks_come_in_the_worst_order() {
        let mut all = Fold::default();
        // Every second tile first, so that nothing can be combined. Then the others fill all gaps.
        let one = [1.0f64.to_bits()];
        for tile in (0..1024u64).step_by(2).chain((1..1024).step_by(2)) {
            all.merge(Fold::of_tiles((tile * TILE_ROWS as u64, TILE_ROWS), TILE_ROWS, &one, &Sum), &Sum);
        }
        assert_eq!(all.nodes.len(), 1);
        assert!(Fold::default().finish(&Sum).is_none());
    }
}
