//! Runs the cases of all modules on their devices, and holds the helpers that the modules share.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use overshot::{DeviceChoice, Engine, EngineBuilder, Job, Report, Scalar};

use crate::watchdog::watched;

pub type Outcome<T = ()> = Result<T, Failed>;
pub type Case = fn(&DeviceChoice) -> Outcome;
pub type EmulatedCase = fn() -> Outcome;

/// Cases with one subject.
pub struct Module {
    pub name: &'static str,
    /// Where its cases run if `OVERSHOT_TEST_DEVICE` is not set.
    pub devices: &'static [&'static str],
    /// Cases for every device.
    pub cases: &'static [(&'static str, Case)],
    /// Cases that compare with the CPU. They run neither there nor on the emulated device, which runs the same code.
    pub gpu: &'static [(&'static str, Case)],
    /// Cases for devices that run a kernel's function for the host.
    pub on_host: &'static [(&'static str, Case)],
    /// Cases only for the emulated device.
    pub emulated: &'static [(&'static str, EmulatedCase)],
    /// Whether the cases count device memory. Then no other case runs at the same time on a device that all
    /// cases share, and the cases run on the stand-ins, too.
    pub counts_memory: bool,
}

/// A module without cases, for all devices.
pub const NO_CASES: Module = Module {
    name: "",
    devices: &["cpu", "emulated", "emulated:1*3", "cpu+emulated:1*2"],
    cases: &[],
    gpu: &[],
    on_host: &[],
    emulated: &[],
    counts_memory: false,
};

/// Settings of the stand-in: number of devices, their memory, how much of it others use, seed.
const STANDINS: &[[&str; 4]] = &[
    ["1", "", "", ""],
    ["1", "16000000", "0", "1"],
    ["2", "16000000,30000000", "0,9000000", "2"],
    ["4", "33554432,12000000,25000000,5000000", "0", "3"],
];

/// Lock on the device of `OVERSHOT_TEST_DEVICE`, which all cases share. A case that counts memory holds it exclusively,
/// all other cases hold it shared.
static DEVICE: RwLock<()> = RwLock::new(());

/// Runs all cases. Cases that do not apply to a device are listed as ignored, with the reason in their name.
pub fn run(modules: &'static [Module]) -> ! {
    let asked = env::var("OVERSHOT_TEST_DEVICE").ok();
    let mut trials = Vec::new();
    for module in modules {
        let devices = asked.as_deref().map_or(module.devices.to_vec(), |device| vec![device]);
        for device in &devices {
            trials.extend(trials_on(module, device, asked.is_some()));
        }
        for &(name, case) in module.emulated {
            let runs = devices.contains(&"emulated");
            let why = if runs { "" } else { " (not run: another device was asked for)" };
            let name = format!("{}, emulated: {name}{why}", module.name);
            trials.push(Trial::test(name.clone(), move || watched(&name, case)).with_ignored_flag(!runs));
        }
        if module.counts_memory && asked.is_none() && cfg!(feature = "cuda") {
            trials.extend(STANDINS.iter().map(|settings| {
                let name = format!("{}: on the stand-in {settings:?}", module.name);
                Trial::test(name, || on_standin(module.name, settings))
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trials_on(module: &'static Module, device: &str, is_shared: bool) -> Vec<Trial> {
    let choice: DeviceChoice = device.parse().expect("OVERSHOT_TEST_DEVICE is a device as --device takes it");
    let (gpu, host) = (device.starts_with("cuda"), !device.contains("cuda"));
    let cases = module.cases.iter().map(|case| (case, true, ""));
    let cases = cases.chain(module.gpu.iter().map(|case| (case, gpu, " (not run: needs a GPU)")));
    let cases = cases.chain(module.on_host.iter().map(|case| (case, host, " (not run: a GPU does without the host)")));
    let trial = |(&(name, case), runs, why): (&(&str, Case), bool, &str)| {
        let choice = choice.clone();
        let why = if runs { "" } else { why };
        let full_name = format!("{}, {device}: {name}{why}", module.name);
        let what = full_name.clone();
        let run = move || match (is_shared, module.counts_memory) {
            (false, _) => watched(&what, || case(&choice)),
            (true, true) => {
                let _alone = DEVICE.write().unwrap_or_else(PoisonError::into_inner);
                watched(&what, || case(&choice))
            }
            (true, false) => {
                let _together = DEVICE.read().unwrap_or_else(PoisonError::into_inner);
                watched(&what, || case(&choice))
            }
        };
        Trial::test(full_name, run).with_ignored_flag(!runs)
    };
    cases.map(trial).collect()
}

/// Runs the cases of a module on stand-ins.
fn on_standin(module: &str, [devices, memory, taken, seed]: &[&str; 4]) -> Outcome {
    let program = env::current_exe()?;
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    check(examples.join("libcuda.so").exists(), "no stand-in: run `cargo build --examples`")?;
    let mut command = Command::new(program);
    command.arg(format!("{module}, cuda: "));
    command.env("LD_LIBRARY_PATH", examples).env("OVERSHOT_CACHE", "").env("OVERSHOT_TEST_DEVICE", "cuda");
    for (name, value) in [("DEVICES", devices), ("MEMORY", memory), ("TAKEN", taken), ("SEED", seed)] {
        if !value.is_empty() {
            command.env(format!("OVERSHOT_STANDIN_{name}"), value);
        }
    }
    let output = command.output()?;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    // A filter that matches no case is not a success.
    check(output.status.success() && !text.contains("running 0 tests"), text)
}

pub fn engine(choice: &DeviceChoice) -> EngineBuilder {
    Engine::builder().device(choice.clone())
}

pub fn cpu() -> Engine {
    Engine::builder().device(DeviceChoice::Cpu).build().expect("the CPU is always there")
}

pub fn check(condition: bool, message: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(message.into().into()) }
}

/// Numbers from −100 to 100 that look random and are the same every time.
pub fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 * 200.0 - 100.0
    };
    (0..count).map(|_| next()).collect()
}

/// Runs passes until `next` has no values for another one; returns the last report.
pub fn each_pass<V: Into<Scalar>, I: IntoIterator<Item = (&'static str, V)>>(
    engine: &Engine,
    job: Job<'_>,
    mut next: impl FnMut(&Report) -> Option<I>,
) -> overshot::Result<Report> {
    engine.passes(job, |passes| {
        loop {
            let report = passes.run()?;
            let Some(values) = next(&report) else { return Ok(report) };
            for (name, value) in values {
                passes.set(name, value)?;
            }
        }
    })
}
