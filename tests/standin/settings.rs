//! The environment variables of the stand-in driver.
//!
//! | variable | meaning | if not set |
//! | --- | --- | --- |
//! | `OVERSHOT_STANDIN_DEVICES` | number of devices | 1 |
//! | `OVERSHOT_STANDIN_MEMORY` | bytes of memory; `A,B,…`: one for each device, the last for all others | 1 GiB |
//! | `OVERSHOT_STANDIN_TAKEN` | bytes of it that others use, likewise | 0 |
//! | `CUDA_VISIBLE_DEVICES` | the devices that are visible, as numbers | all |
//! | `OVERSHOT_STANDIN_SEED` | delays before each piece of work, from this seed | no delays |
//! | `OVERSHOT_STANDIN_FAIL_ALLOC` | the Nth allocation finds no memory | none fails |
//! | `OVERSHOT_STANDIN_FAIL_PIN` | the Nth registration of host memory fails | none fails |
//! | `OVERSHOT_STANDIN_FAIL_COPY` | the Nth copy fails: `N` at the call, `N:later` when it runs | none fails |
//! | `OVERSHOT_STANDIN_FAIL_LAUNCH` | the Nth launch fails: `N` or `N:later` | none fails |
//! | `OVERSHOT_STANDIN_FAIL` | the Nth call of a function fails, of cuBLAS too: `NAME:N:MODE`, see below | none fails |
//!
//! N counts from 1 over all devices. A failure at the call leaves the device usable. A later failure makes
//! every further call on the device fail, as a fault on a GPU does.
//!
//! MODE is `once` (only this call), `twice` (this call and the next one of the function), `device` (the device is lost
//! to the process until its context is released), `process` (all devices are), `memory` (the call finds no memory),
//! `always` (this call and all later ones of the function), `late` (the work that it enqueues fails), `slow` (the call
//! or its work takes long), `flip` (this copy, launch or product gets one bit wrong) or `hang` (the work that it
//! enqueues never ends). A running process can set a failure, too: see `inject.rs`.

use std::env;
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::inject::{Failing, Mode};

pub struct Settings {
    pub devices: usize,
    /// By ordinal.
    pub visible: Vec<usize>,
    memory: Vec<usize>,
    taken: Vec<usize>,
    pub seed: Option<u64>,
    pub alloc: Failure,
    pub pin: Failure,
    pub copy: Failure,
    pub launch: Failure,
    pub failing: Option<Failing>,
}

pub static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    devices: number("DEVICES").unwrap_or(1),
    visible: visible(number("DEVICES").unwrap_or(1)),
    memory: numbers("MEMORY").unwrap_or(vec![1 << 30]),
    taken: numbers("TAKEN").unwrap_or(vec![0]),
    seed: number("SEED"),
    alloc: Failure::from_env("FAIL_ALLOC"),
    pin: Failure::from_env("FAIL_PIN"),
    copy: Failure::from_env("FAIL_COPY"),
    launch: Failure::from_env("FAIL_LAUNCH"),
    failing: variable("FAIL").map(|text| failing(&text)),
});

impl Settings {
    pub fn memory(&self, device: usize) -> usize {
        self.memory[device.min(self.memory.len() - 1)]
    }

    pub fn taken(&self, device: usize) -> usize {
        self.taken[device.min(self.taken.len() - 1)]
    }
}

/// Reads it as the driver does: up to the first number that is not a device.
fn visible(devices: usize) -> Vec<usize> {
    match env::var("CUDA_VISIBLE_DEVICES") {
        Ok(text) => {
            text.split(',').map_while(|number| number.parse().ok().filter(|&device| device < devices)).collect()
        }
        Err(_) => (0..devices).collect(),
    }
}

/// When calls of one kind fail.
pub struct Failure {
    /// 0: never.
    nth: u64,
    later: bool,
    calls: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Succeeds,
    FailsNow,
    FailsLater,
}

impl Failure {
    fn from_env(name: &str) -> Failure {
        let text = variable(name).unwrap_or_default();
        let (nth, later) = match text.strip_suffix(":later") {
            Some(nth) => (nth, true),
            None => (text.as_str(), false),
        };
        let nth = if nth.is_empty() { 0 } else { parse(name, nth) };
        Failure { nth, later, calls: AtomicU64::new(0) }
    }

    /// Counts a call and returns its outcome.
    pub fn next(&self) -> Fate {
        match self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
            false => Fate::Succeeds,
            true if self.later => Fate::FailsLater,
            true => Fate::FailsNow,
        }
    }
}

fn failing(text: &str) -> Failing {
    let mut parts = text.split(':');
    let (Some(name), Some(nth), Some(mode), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        crate::misuse(format_args!("OVERSHOT_STANDIN_FAIL={text} is not NAME:N:MODE"));
    };
    let Some((_, mode)) = Mode::NAMES.into_iter().find(|(name, _)| *name == mode) else {
        crate::misuse(format_args!("OVERSHOT_STANDIN_FAIL={text} has no mode {mode}"));
    };
    Failing { name: name.into(), nth: parse("FAIL", nth), mode }
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    variable(name).map(|text| parse(name, &text))
}

fn numbers(name: &str) -> Option<Vec<usize>> {
    variable(name).map(|text| text.split(',').map(|text| parse(name, text)).collect())
}

fn variable(name: &str) -> Option<String> {
    env::var(format!("OVERSHOT_STANDIN_{name}")).ok()
}

fn parse<T: FromStr>(name: &str, text: &str) -> T {
    text.parse().unwrap_or_else(|_| crate::misuse(format_args!("OVERSHOT_STANDIN_{name}={text} is no number")))
}
