//! The operator `eval`: an expression over the rows of the inputs, with outputs and reductions.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::fold::{Combine, SharedFold};
use super::{Operator, Place, State, state};
use crate::data::Scalar;
use crate::device::Precision;
use crate::device::kernel::{Kernel, Resident, SharedKernel};
use crate::error::Result;
use crate::expr::{BoundLayers, Program, Reduction, Results};

pub(crate) struct Eval {
    program: Arc<Program>,
    kernel: SharedKernel,
    fold: SharedFold,
    products: Vec<Reduction>,
    sums: SharedFold,
}

impl Eval {
    /// `resident` are the arrays of the kernel ([`Program::kernel_with`]), which runs on so many rows, and multiplies
    /// with this precision.
    pub(crate) fn new(program: Program, resident: Vec<Arc<Resident>>, total_rows: u64, precision: Precision) -> Self {
        let program = Arc::new(program);
        let products = program.products().iter().map(|product| product.reduction.clone()).collect();
        let kernel = program.kernel_with(resident, total_rows);
        Eval::with_kernel(program, kernel, products, precision)
    }

    /// An expression in layers, of which `outputs` outputs are those of the job.
    pub(crate) fn in_layers(layers: BoundLayers, outputs: usize, total_rows: u64, precision: Precision) -> Self {
        let (program, kernel, products) = layers.compose(outputs, total_rows);
        Eval::with_kernel(program, kernel, products, precision)
    }

    fn with_kernel(program: Arc<Program>, mut kernel: Kernel, products: Vec<Reduction>, precision: Precision) -> Self {
        kernel.columns.precision = precision;
        let (fold, sums) = <(SharedFold, SharedFold)>::default();
        Eval { program, kernel: Arc::new(kernel), fold, products, sums }
    }
}

impl Eval {
    /// Returns the states of tiles, of which each strip has its own in the partials.
    fn states<'p>(&self, partials: &'p [u64]) -> Cow<'p, [u64]> {
        let words = self.kernel.columns.partial_words;
        if words == self.program.reductions().words() {
            return Cow::Borrowed(partials);
        }
        Cow::Owned(partials.chunks(words).flat_map(|tile| self.program.state_of_tile(tile).into_owned()).collect())
    }
}

impl Operator for Eval {
    fn kernel(&self) -> &SharedKernel {
        &self.kernel
    }

    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]) {
        let (columns, how) = (&self.kernel.columns, self.program.reductions());
        if !columns.has_partials() {
            return;
        }
        let states = self.states(bytemuck::cast_slice(&partials[columns.tile_partials(0..rows)]));
        if how.words() > 0 {
            self.fold.add_tiles((first_row, rows), columns.tile_rows, &states, how);
        }
        if self.program.keeps_tiles() {
            let partials: &[u64] = bytemuck::cast_slice(&partials[columns.tile_partials(0..rows)]);
            let tiles = partials.chunks(columns.partial_words);
            let kept = tiles.flat_map(|tile| self.program.kept_of_tile(tile)).collect();
            self.fold.keep(first_row / columns.tile_rows as u64, kept);
        }
        self.fold.add(bytemuck::cast_slice(&partials[columns.chunk_partials()]), how);
    }

    fn absorb_alike(&self, rows: &[Range<u64>], tile: &[u8]) {
        let (columns, how) = (&self.kernel.columns, self.program.reductions());
        if !columns.has_partials() {
            return;
        }
        let states = self.states(bytemuck::cast_slice(&tile[columns.tile_partials(0..columns.tile_rows)]));
        let tile_rows = columns.tile_rows as u64;
        let tiles: Vec<_> = rows.iter().map(|rows| rows.start / tile_rows..rows.end / tile_rows).collect();
        self.fold.add_alike(&tiles, &states, bytemuck::cast_slice(&tile[columns.chunk_partials()]), how);
    }

    fn product_sums(&self) -> Box<[u64]> {
        self.sums.memory(self.products.words())
    }

    fn absorb_products(&self, node: Place, sums: Box<[u64]>, threads: usize) {
        self.sums.add_node(node, sums, &OnThreads { reductions: &self.products, threads });
    }

    fn restart(&self) {
        self.fold.clear();
        self.sums.clear();
    }

    fn compacts(&self) -> bool {
        self.program.is_filtered()
    }

    fn difference(&self, one: &[u64], other: &[u64], rows: u64) -> Option<[String; 3]> {
        let states = [one, other].map(|tile| self.program.state_of_tile(tile));
        let kept = [one, other].map(|tile| self.program.kept_of_tile(tile));
        let reductions = self.program.reductions();
        let of_states = difference(reductions, &states[0], &states[1], rows);
        of_states.or_else(|| difference_of_kept(reductions, &kept[0], &kept[1]))
    }

    fn difference_of_chunk(&self, one: &[u64], other: &[u64]) -> Option<[String; 3]> {
        difference_of_chunk(self.program.reductions(), one, other)
    }

    fn state(&self) -> State {
        let reductions = self.program.reductions();
        State {
            reductions: reductions.to_vec(),
            nodes: self.fold.get(reductions).clone(),
            products: self.products.clone(),
            sums: self.sums.get(&self.products[..]).clone(),
        }
    }

    /// Without a copy of the state: it may be large.
    fn results(&self, rows: u64) -> Result<Results> {
        let (reductions, products) = (self.program.reductions(), &self.products[..]);
        let (nodes, sums) = (self.fold.get(reductions), self.sums.get(products));
        state::results((reductions, &nodes), (products, &sums), rows)
    }
}

/// Returns the first result in which two states of a tile of `rows` rows differ, and both as text.
fn difference(reductions: &[Reduction], one: &[u64], other: &[u64], rows: u64) -> Option<[String; 3]> {
    let mut word = 0;
    reductions.iter().find_map(|reduction| {
        let own = word..word + reduction.state_words();
        word = own.end;
        let (one, other) = (&one[own.clone()], &other[own]);
        if one == other {
            return None;
        }
        let columns = (0..reduction.columns()).map(|column| {
            let states = [one, other].map(|state| reduction.state_of_column(state, column));
            (column, states)
        });
        let (column, states) = columns.into_iter().find(|(_, [one, other])| one != other)?;
        let [one, other] = states.map(|state| {
            let state = &state[..reduction.words()];
            let value = reduction.finish(Some(state), rows).map_or_else(String::new, |value| value.to_string());
            let bits: Vec<_> = state.iter().map(|word| format!("{word:#x}")).collect();
            format!("{value} ({})", bits.join(" "))
        });
        let what = match (reduction.is_result(), reduction.shape()) {
            (false, _) => "the number of selected rows".into(),
            (true, None) => format!("the partial result of '{}'", reduction.label()),
            (true, Some(shape)) => {
                format!("the partial result of '{}' at {:?}", reduction.label(), place(shape, column as u64))
            }
        };
        Some([what, one, other])
    })
}

/// Returns the first of the kept words in which two tiles differ, and both as text.
fn difference_of_kept(reductions: &[Reduction], one: &[u64], other: &[u64]) -> Option<[String; 3]> {
    let kept = reductions.iter().filter(|reduction| reduction.keeps_tiles());
    kept.zip(one.iter().zip(other)).find(|(_, (one, other))| one != other).map(|(reduction, (one, other))| {
        let text = |bits: u64| format!("{} ({bits:#x})", Scalar::of_bits(reduction.state_dtype(), bits));
        [format!("the partial result of '{}'", reduction.label()), text(*one), text(*other)]
    })
}

/// Returns the first result in which the words of a chunk differ, and both as text.
fn difference_of_chunk(reductions: &[Reduction], mut one: &[u64], mut other: &[u64]) -> Option<[String; 3]> {
    reductions.iter().find_map(|reduction| {
        let (own, rest) = one.split_at_checked(reduction.chunk_words())?;
        let (others, other_rest) = other.split_at_checked(own.len())?;
        (one, other) = (rest, other_rest);
        reduction.tally()?.difference(reduction.label(), [own, others])
    })
}

/// Returns the index in each dimension of an element, in row-major order, of an array of this shape.
fn place(shape: &[u64], mut element: u64) -> Vec<u64> {
    let mut place: Vec<u64> = shape
        .iter()
        .rev()
        .map(|length| {
            let index = element % (*length).max(1);
            element /= (*length).max(1);
            index
        })
        .collect();
    place.reverse();
    place
}

/// Combines the states of reductions on several threads, where they are large.
struct OnThreads<'r> {
    reductions: &'r [Reduction],
    threads: usize,
}

impl Combine for OnThreads<'_> {
    fn words(&self) -> usize {
        self.reductions.words()
    }

    fn combine(&self, mut left: &mut [u64], mut right: &[u64]) {
        for reduction in self.reductions.iter().filter(|reduction| reduction.state_words() > 0) {
            let (l, l_rest) = left.split_at_mut(reduction.state_words());
            let (r, r_rest) = right.split_at(reduction.state_words());
            reduction.combine_on(self.threads, l, r);
            (left, right) = (l_rest, r_rest);
        }
    }
}

impl Combine for [Reduction] {
    fn words(&self) -> usize {
        self.iter().map(|reduction| reduction.state_words()).sum()
    }

    fn combine(&self, left: &mut [u64], right: &[u64]) {
        OnThreads { reductions: self, threads: 1 }.combine(left, right);
    }

    fn combine_pairs(&self, states: &mut [u64]) {
        let words = self.words();
        let mut first = 0;
        for reduction in self.iter().filter(|reduction| reduction.state_words() > 0) {
            let own = first..first + reduction.state_words();
            if reduction.columns() == 1 {
                reduction.combine_pairs(states, words, first);
            } else {
                for pair in 0..states.len() / words / 2 {
                    let (left, right) = states[2 * pair * words..][..2 * words].split_at_mut(words);
                    reduction.combine(&mut left[own.clone()], &right[own.clone()]);
                    let from = 2 * pair * words;
                    states.copy_within(from + own.start..from + own.end, pair * words + own.start);
                }
            }
            first = own.end;
        }
    }

    fn chunk_words(&self) -> usize {
        self.iter().map(Reduction::chunk_words).sum()
    }

    fn add(&self, mut sums: &mut [u64], mut words: &[u64]) {
        for (tally, count) in self.iter().filter_map(|reduction| Some((reduction.tally()?, reduction.chunk_words()))) {
            let own = (sums.split_off_mut(..count), words.split_off(..count));
            if let (Some(sums), Some(words)) = own {
                tally.combine(sums, words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fold;
    use super::*;
    use crate::data::{Dtype, Scalar};
    use crate::device::kernel::{TILE_ROWS, Uniform};
    use crate::expr::Expression;

    const TEXT: &str = "sum(x), sum(x * x), sum(1 / x), mean(x), mean(x * x), var(x), var(x * x), std(x), std(1 / x)";

    /// The results of the reductions of a fixed column, with chunks in a given order.
    fn results(rows: usize, chunk_tiles: usize, order: impl Fn(&mut Vec<usize>)) -> Vec<(String, u64)> {
        let expression = Expression::parse(TEXT).unwrap();
        let eval =
            Eval::new(expression.bind(&[("x".into(), Dtype::F64)], &[], &[], &[]).unwrap(), vec![], 0, Precision::Full);
        let (mut state, mut row) = (1_u64, 0);
        let column: Vec<f64> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exact on every machine: integers divided by powers of two, so that mean and spread differ between tiles.
            let (tile, noise) = (row / TILE_ROWS, (state >> 11) as f64 / (1_u64 << 53) as f64);
            row += 1;
            (noise + (tile * 37 % 29) as f64) * (1 << (tile * 5 % 7)) as f64 + 0.125
        })
        .take(rows)
        .collect();
        let mut starts: Vec<usize> = (0..rows).step_by(chunk_tiles * TILE_ROWS).collect();
        order(&mut starts);
        let mut host = eval.kernel().new_host_kernel().unwrap();
        for start in starts {
            let part = &column[start..rows.min(start + chunk_tiles * TILE_ROWS)];
            let mut partials = vec![0_u64; eval.kernel().columns.partial_bytes(part.len()) / 8];
            let bytes = bytemuck::cast_slice_mut(&mut partials);
            host.run(start as u64, part.len(), &[bytemuck::cast_slice(part)], &mut [], bytes, &Uniform::default());
            eval.absorb(start as u64, part.len(), bytemuck::cast_slice(&partials));
        }
        let bits = |(label, value): (String, Option<Scalar>)| (label, value.unwrap().bits());
        eval.results(rows as u64).unwrap().values.into_iter().map(bits).collect()
    }

    /// The order of float additions determines the results. A release that changes these bits must announce it.
    #[test]
    fn the_order_of_folding_shows_in_these_bits() {
        let expected = [
            ("sum(x)", 0x4177_cf6d_883f_43b4),
            ("sum(x * x)", 0x4219_0dfe_9301_c931),
            ("sum(1 / x)", 0x40c6_7779_a565_6d55),
            ("mean(x)", 0x4069_2525_56ac_20e7),
            ("mean(x * x)", 0x410a_7592_5af3_d099),
            ("var(x)", 0x4105_8504_fd77_93e6),
            ("var(x * x)", 0x4261_3eff_9fc5_4eb0),
            ("std(x)", 0x407a_3de0_d28f_8e5b),
            ("std(1 / x)", 0x3fde_f1fa_2e94_7f2c),
        ];
        // 31 tiles: five nodes remain.
        let rows = 30 * TILE_ROWS + 1234;
        let orders: [fn(&mut Vec<usize>); 3] = [
            |_| {},
            |starts| starts.reverse(),
            |starts| {
                let (even, odd): (Vec<_>, Vec<_>) = starts.iter().enumerate().partition(|(k, _)| k % 2 == 0);
                *starts = odd.into_iter().chain(even).map(|(_, start)| *start).collect();
            },
        ];
        for chunk_tiles in [1, 2, 5, 64] {
            for order in orders {
                let found = results(rows, chunk_tiles, order);
                let found: Vec<_> = found.iter().map(|(label, bits)| (label.as_str(), *bits)).collect();
                assert_eq!(found, expected, "chunks of {chunk_tiles} tiles\n{found:#x?}");
            }
        }
    }

    fn reduction(kind: &str, dtype: Dtype, shape: Option<&[u64]>) -> Reduction {
        Reduction::parse(kind.into(), kind, dtype.name(), None, (1, shape.map(<[u64]>::to_vec)), None).unwrap()
    }

    /// A state of a tile, as a kernel would write it.
    fn state_of(reductions: &[Reduction], tile: u64) -> Vec<u64> {
        let mut random = tile + 1;
        let word = |reduction: &Reduction| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Sums of these depend on their order.
            let float = (random >> 40) as f64 * 0.1 + 1.0;
            if reduction.dtype() == Dtype::F64 { float.to_bits() } else { random >> 33 }
        };
        let mut word = word;
        reductions.iter().flat_map(|each| (0..each.state_words()).map(|_| word(each)).collect::<Vec<_>>()).collect()
    }

    /// Columns are folded in the tree of single values, among other reductions, in tiles of any number of rows.
    #[test]
    fn columns_have_the_tree_of_single_values() {
        let shape = Some(&[2_u64, 3][..]);
        let kinds = [("sum", Dtype::F64), ("var", Dtype::F64), ("argmax", Dtype::I64), ("prod", Dtype::F64)];
        let joint: Vec<_> = kinds
            .iter()
            .flat_map(|&(kind, dtype)| [reduction(kind, dtype, None), reduction(kind, dtype, shape)])
            .collect();
        for (tiles, tile_rows) in [(1_u64, 4096_u64), (13, 4096), (64, 256), (100, 1), (31, 1024)] {
            let mut all = Fold::default();
            let mut starts: Vec<u64> = (0..tiles).step_by(3).collect();
            starts.reverse();
            for start in starts {
                let own = start..tiles.min(start + 3);
                let states: Vec<u64> = own.clone().flat_map(|tile| state_of(&joint, tile)).collect();
                // The last tile is not full.
                let rows = ((own.end - start) * tile_rows - u64::from(tile_rows > 1)) as usize;
                let nodes = Fold::of_tiles((start * tile_rows, rows), tile_rows as usize, &states, &joint[..]);
                all.merge(nodes, &joint[..]);
            }
            let results = |of: &[Reduction], nodes: Fold| {
                let state = State { reductions: of.to_vec(), nodes, ..State::default() };
                state.results(tiles * tile_rows).unwrap()
            };
            let found = results(&joint, all);
            // Each column by itself, in order.
            let mut word = 0;
            for along in &joint {
                let one = reduction(along.kind(), along.dtype(), None);
                for column in 0..along.columns() {
                    let mut fold = Fold::default();
                    for tile in 0..tiles {
                        let state = &state_of(&joint, tile)[word..word + along.state_words()];
                        let own: Box<[u64]> = state.iter().skip(column).step_by(along.columns()).copied().collect();
                        let how = std::slice::from_ref(&one);
                        fold.merge(Fold::of_nodes([((0, tile), own)]), how);
                    }
                    let single = results(std::slice::from_ref(&one), fold).values[0].1;
                    let own = match along.shape() {
                        None => found.values.iter().find(|(label, _)| label == along.label()).unwrap().1,
                        Some(_) => {
                            let array = found.arrays.iter().find(|(label, _)| label == along.label());
                            array.unwrap().1.as_ref().unwrap().get(column)
                        }
                    };
                    assert_eq!(own, single, "column {column} of {along:?}, {tiles} tiles");
                }
                word += along.state_words();
            }
            assert_eq!((found.values.len(), found.arrays.len()), (kinds.len(), kinds.len()));
        }
    }

    #[test]
    fn pairs_are_combined_as_one_by_one() {
        let kinds = ["sum", "prod", "mean", "var", "std", "min", "max", "argmin", "argmax"];
        let dtypes = [Dtype::F64, Dtype::I64, Dtype::U64];
        let shapes = [None, Some(&[5_u64][..])];
        let each = kinds.iter().flat_map(|kind| dtypes.map(|dtype| shapes.map(|shape| reduction(kind, dtype, shape))));
        let reductions: Vec<Reduction> = each.flatten().collect();
        let words = reductions.words();
        for pairs in [0, 1, 2, 127, 128, 129, 300] {
            let mut states: Vec<u64> = (0..2 * pairs).flat_map(|tile| state_of(&reductions, tile)).collect();
            // Values that are equal, and the NaN that processors make, in place of some.
            for (k, word) in states.iter_mut().enumerate() {
                match k % 11 {
                    0 => *word = 2.0_f64.to_bits(),
                    1 => *word = (-f64::NAN).to_bits(),
                    _ => {}
                }
            }
            let naive = states.chunks(2 * words).flat_map(|pair| {
                let (left, right) = pair.split_at(words);
                let mut left = left.to_vec();
                reductions.combine(&mut left, right);
                left
            });
            let naive: Vec<u64> = naive.collect();
            reductions.combine_pairs(&mut states);
            assert!(states[..naive.len()] == naive, "{pairs} pairs");
        }
    }

    #[test]
    fn large_states_are_the_same_on_several_threads() {
        let columns = (1 << 19) + 5;
        let reductions = [3, columns, 1].map(|columns| reduction("sum", Dtype::F64, Some(&[columns])));
        let words = columns as usize + 4;
        let state = |seed: usize| -> Vec<u64> {
            (0..words).map(|k| (((k * 7919 + seed) % 10_007) as f64 / 3.0).to_bits()).collect()
        };
        let right = state(2);
        let combined = |threads: usize| {
            let mut left = state(1);
            OnThreads { reductions: &reductions, threads }.combine(&mut left, &right);
            left
        };
        let naive: Vec<u64> = state(1)
            .iter()
            .zip(&right)
            .map(|(left, right)| (f64::from_bits(*left) + f64::from_bits(*right)).to_bits())
            .collect();
        for threads in [0, 1, 2, 3, 4, 16] {
            assert!(combined(threads) == naive, "on {threads} threads");
        }
    }

    #[test]
    fn a_difference_names_the_column() {
        let shape = Some(&[2_u64, 3][..]);
        let reductions = [
            reduction("sum", Dtype::I64, None),
            reduction("argmax", Dtype::I64, shape),
            reduction("mean", Dtype::F64, Some(&[4])),
        ];
        let right = [vec![7; 1 + 12], vec![8.0_f64.to_bits(); 4]].concat();
        assert_eq!(difference(&reductions, &right, &right, 4), None);
        let with = |word: usize, value: u64| {
            let mut other = right.clone();
            other[word] = value;
            difference(&reductions, &other, &right, 4).unwrap()
        };
        assert_eq!(with(0, 6), ["the partial result of 'sum'", "6 (0x6)", "7 (0x7)"]);
        // The row of column 5, behind the values of six columns.
        assert_eq!(with(1 + 6 + 5, 9), ["the partial result of 'argmax' at [1, 2]", "9 (0x7 0x9)", "7 (0x7 0x7)"]);
        let found = with(1 + 12 + 2, 16.0_f64.to_bits());
        let texts = ["4.0 (0x4030000000000000)", "2.0 (0x4020000000000000)"];
        assert_eq!(found, ["the partial result of 'mean' at [2]", texts[0], texts[1]]);
    }
}
