//! Programs that misuse a slot or a claim, which must not compile. Only `tests/slot_states.rs` compiles this file.
//!
//! Each `wrong_…` has a twin `right_…`, which compiles and differs from it in one line. A comment `//~` gives the code
//! of the error that the compiler must report in its line.

use super::*;
use crate::data::{Dtype, SinkMemory};

/// Uses a value, so that what it borrows is borrowed up to here.
fn keep<T>(_: T) {}

// A slot that was handed on is not filled.
fn right_fill_again<D: Device>(mut idle: Idle<'_, D>) {
    let filled = idle.filled(0, Duration::ZERO);
    keep(filled);
}
fn wrong_fill_again<D: Device>(mut idle: Idle<'_, D>) {
    let filled = idle.filled(0, Duration::ZERO);
    keep((filled, idle.input_mut(0))); //~ E0382
}

// Nor is a slot while the submitter has it.
fn right_fill<D: Device>(mut slot: Idle<'_, D>) {
    keep(slot.input_mut(0));
}
fn wrong_fill<D: Device>(mut slot: InFlight<'_, D>) {
    keep(slot.input_mut(0)); //~ E0599
}

// Nobody holds the rows of an input when a slot is handed on.
fn right_hold_input<D: Device>(mut idle: Idle<'_, D>) {
    let rows = idle.input_mut(0);
    let filled = idle.filled(0, Duration::ZERO);
    keep(filled);
}
fn wrong_hold_input<D: Device>(mut idle: Idle<'_, D>) {
    let rows = idle.input_mut(0);
    let filled = idle.filled(0, Duration::ZERO); //~ E0505
    keep((filled, rows));
}

// Nor when it goes to another thread.
fn right_send<D: Device>(mut idle: Idle<'_, D>) {
    let rows = idle.input_mut(0);
    std::thread::scope(|scope| keep(scope.spawn(move || keep(idle))));
    keep(());
}
fn wrong_send<D: Device>(mut idle: Idle<'_, D>) {
    let rows = idle.input_mut(0);
    std::thread::scope(|scope| keep(scope.spawn(move || keep(idle)))); //~ E0505
    keep(rows);
}

// A slot is submitted once.
fn right_submit<'r, D: Device>(slot: Filled<'r, D>, streams: &mut Streams<'r, D>, host: &mut D::Host) {
    let first = slot.submit(streams, host);
    keep(first);
}
fn wrong_submit<'r, D: Device>(slot: Filled<'r, D>, streams: &mut Streams<'r, D>, host: &mut D::Host) {
    let first = slot.submit(streams, host);
    keep((first, slot.submit(streams, host))); //~ E0382
}

// Outputs are not read before they are copied …
fn right_read_filled<D: Device>(slot: Done<'_, D>) {
    keep(slot.output(0));
}
fn wrong_read_filled<D: Device>(slot: Filled<'_, D>) {
    keep(slot.output(0)); //~ E0599
}
fn right_read_in_flight<D: Device>(slot: Done<'_, D>) {
    keep(slot.partials());
}
fn wrong_read_in_flight<D: Device>(slot: InFlight<'_, D>) {
    keep(slot.partials()); //~ E0599
}

// … nor after the slot was freed for the next chunk.
fn right_hold_output<D: Device>(done: Done<'_, D>) {
    let rows = done.output(0);
    let idle = done.recycle();
    keep(idle);
}
fn wrong_hold_output<D: Device>(done: Done<'_, D>) {
    let rows = done.output(0);
    let idle = done.recycle(); //~ E0505
    keep((idle, rows));
}

// A slot is either in flight or done.
fn right_finish<'r, D: Device>(slot: InFlight<'r, D>, streams: &Streams<'r, D>, host: &mut D::Host) {
    let finished = slot.finish(streams, host);
    keep(finished);
}
fn wrong_finish<'r, D: Device>(slot: InFlight<'r, D>, streams: &Streams<'r, D>, host: &mut D::Host) {
    let finished = slot.finish(streams, host);
    keep((finished, slot)); //~ E0382
}

// The memory of a slot outlives it, in every state, and only the slot accesses it.
fn right_free_memory<D: Device>(mut memory: Vec<u8>, layout: &Layout, columns: &Columns, device: &D) {
    let idle = Idle::new(&mut memory, layout, columns, device);
    keep(());
    keep(idle.map(|idle| idle.filled(0, Duration::ZERO)));
}
fn wrong_free_memory<D: Device>(mut memory: Vec<u8>, layout: &Layout, columns: &Columns, device: &D) {
    let idle = Idle::new(&mut memory, layout, columns, device);
    drop(memory); //~ E0505
    keep(idle.map(|idle| idle.filled(0, Duration::ZERO)));
}
fn right_write_memory<D: Device>(mut memory: Vec<u8>, layout: &Layout, columns: &Columns, device: &D) {
    let filled = Idle::new(&mut memory, layout, columns, device).map(|idle| idle.filled(0, Duration::ZERO));
    keep(());
    keep(filled);
}
fn wrong_write_memory<D: Device>(mut memory: Vec<u8>, layout: &Layout, columns: &Columns, device: &D) {
    let filled = Idle::new(&mut memory, layout, columns, device).map(|idle| idle.filled(0, Duration::ZERO));
    memory[0] = 1; //~ E0499
    keep(filled);
}

// The memory of a sink outlives the claims on it, and only they access it.
fn right_free_claimed(mut rows: Vec<u8>) {
    let memory = SinkMemory::new(&mut rows, Dtype::U8).expect("bytes are aligned");
    let claim = memory.claim(0..1);
    keep(());
    keep(claim);
}
fn wrong_free_claimed(mut rows: Vec<u8>) {
    let memory = SinkMemory::new(&mut rows, Dtype::U8).expect("bytes are aligned");
    let claim = memory.claim(0..1);
    drop(memory); //~ E0505
    keep(claim);
}
fn right_write_claimed(mut rows: Vec<u8>) {
    let memory = SinkMemory::new(&mut rows, Dtype::U8).expect("bytes are aligned");
    let claim = memory.claim(0..1);
    keep(());
    keep(claim);
}
fn wrong_write_claimed(mut rows: Vec<u8>) {
    let memory = SinkMemory::new(&mut rows, Dtype::U8).expect("bytes are aligned");
    let claim = memory.claim(0..1);
    rows[0] = 1; //~ E0499
    keep(claim);
}
