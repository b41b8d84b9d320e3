//! Reads an object before its bytes are needed, for those who read it in small pieces from the first to the last one: a
//! server takes a long time to begin an answer.

use super::read::RemoteObject;
use super::runtime::start;
use crate::data::storage::copy_of;
use crate::error::{Error, Result};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// The bytes of one request.
const BLOCK: u64 = 4 << 20;
/// Blocks that are asked for before they are needed.
const AHEAD: u64 = 4;
/// The most readers at different places that are told from readers at any place.
const READERS: usize = 64;

/// The blocks of an object that are in memory, or come.
#[derive(Debug)]
pub(in crate::data) struct Ahead {
    object: Arc<RemoteObject>,
    shared: Arc<Shared>,
    /// The most blocks in memory that nobody waits for.
    most: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A block has come.
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By their numbers.
    blocks: HashMap<u64, Block>,
    /// Where the last reads ended.
    ends: VecDeque<u64>,
    /// The number of uses so far.
    uses: u64,
    /// How often all was forgotten. What came for a state before is not kept.
    cleared: u64,
}

#[derive(Debug)]
enum Block {
    Coming,
    /// The bytes, and the number of their last use.
    There(Arc<Vec<u8>>, u64),
    /// All that was tried is in vain: nobody asks again before all is forgotten.
    Failed(Error),
}

impl Ahead {
    pub(in crate::data) fn new(object: Arc<RemoteObject>) -> Ahead {
        let most = available_parallelism().map_or(1, usize::from) + 2 * AHEAD as usize;
        Ahead { object, shared: Arc::default(), most }
    }

    /// Returns the most bytes that are in memory.
    pub(in crate::data) fn memory(&self) -> u64 {
        self.object.len().min((self.most as u64 + AHEAD) * BLOCK)
    }

    /// Forgets the blocks.
    pub(in crate::data) fn clear(&self) {
        let mut state = self.lock();
        let cleared = state.cleared + 1;
        *state = State { cleared, ..State::default() };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `dst` with the bytes at an offset, as [`RemoteObject::read_at`] does.
    pub(in crate::data) fn read_at(&self, dst: &mut [u8], at: u64) -> Result<()> {
        let len = dst.len() as u64;
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.object.len());
        if len == 0 || len >= BLOCK || !is_inside || !self.is_next(at, at + len) {
            return self.object.read_at(dst, at);
        }
        let (mut at, mut rest) = (at, dst);
        while !rest.is_empty() {
            let bytes = self.block(at / BLOCK)?;
            let own = &bytes[(at % BLOCK) as usize..];
            let (part, after) = rest.split_at_mut(own.len().min(rest.len()));
            part.copy_from_slice(&own[..part.len()]);
            (at, rest) = (at + part.len() as u64, after);
        }
        Ok(())
    }

    /// Returns whether a read begins where another one has ended, or not far behind.
    fn is_next(&self, at: u64, end: u64) -> bool {
        let mut state = self.lock();
        let is_near = |known: &u64| at.checked_sub(*known).is_some_and(|gap| gap < BLOCK);
        // A block that is there, or comes, is of a reader that is known.
        let found = state.ends.iter().position(is_near);
        let is_next = found.is_some() || state.blocks.contains_key(&(at / BLOCK));
        match found {
            Some(place) => state.ends[place] = state.ends[place].max(end),
            None => state.ends.push_back(end),
        }
        if state.ends.len() > READERS {
            state.ends.pop_front();
        }
        is_next
    }

    /// Returns a block, and asks for those behind it.
    fn block(&self, number: u64) -> Result<Arc<Vec<u8>>> {
        let last = (self.object.len() - 1) / BLOCK;
        let mut state = self.lock();
        loop {
            for number in number..=(number + AHEAD).min(last) {
                let cleared = state.cleared;
                if let Entry::Vacant(place) = state.blocks.entry(number) {
                    self.ask(number, cleared)?;
                    place.insert(Block::Coming);
                }
            }
            state.uses += 1;
            let now = state.uses;
            match state.blocks.get_mut(&number) {
                Some(Block::There(bytes, used)) => {
                    *used = now;
                    let bytes = bytes.clone();
                    state.forget(self.most);
                    return Ok(bytes);
                }
                Some(Block::Failed(error)) => return Err(copy_of(error)),
                Some(Block::Coming) => {
                    state = self.shared.came.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None => {}
            }
        }
    }

    fn ask(&self, number: u64, cleared: u64) -> Result<()> {
        let (object, shared) = (self.object.clone(), self.shared.clone());
        let at = number * BLOCK;
        let mut bytes = vec![0; BLOCK.min(object.len() - at) as usize];
        let asked = start(async move {
            let panicked = object.broken(at, bytes.len(), "a request stopped with a panic".into());
            // Not before: the caller, who has the lock, drops a future that does not start.
            let mut coming = Coming { shared, number, cleared, block: Block::Failed(panicked) };
            let done = object.piece(&mut bytes, at).await;
            coming.block = done.map_or_else(Block::Failed, |()| Block::There(Arc::new(bytes), 0));
        });
        asked.map_err(|error| self.object.no_thread(at, error))
    }
}

/// A block that was asked for. Those who wait for it are told when this value goes, whatever has happened.
struct Coming {
    shared: Arc<Shared>,
    number: u64,
    cleared: u64,
    block: Block,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.cleared == self.cleared {
            let now = state.uses;
            let block = match std::mem::replace(&mut self.block, Block::Coming) {
                Block::There(bytes, _) => Block::There(bytes, now),
                other => other,
            };
            state.blocks.insert(self.number, block);
        }
        drop(state);
        self.shared.came.notify_all();
    }
}

impl State {
    /// Forgets the blocks that were not used for the longest time.
    fn forget(&mut self, most: usize) {
        while self.blocks.values().filter(|block| matches!(block, Block::There(..))).count() > most {
            let used = |(number, block): (&u64, &Block)| match block {
                Block::There(_, used) => Some((*used, *number)),
                _ => None,
            };
            let Some((_, oldest)) = self.blocks.iter().filter_map(used).min() else { return };
            self.blocks.remove(&oldest);
        }
    }
}
