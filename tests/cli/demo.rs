//! The demo, small.

use std::fs;

use crate::tools::{CaseFolder, RAN};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("the demo checks itself and cleans up", sizes),
    ("the demo without a GPU", automatic),
    ("the demo keeps its files", keep),
    ("the demo asks for space first", space),
];

fn sizes(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    for size in ["1", "12345", "5MiB"] {
        let done = place.overshot(&["demo", "--size", size, "--device", device]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert_eq!(done.stdout.matches("Checked:").count(), 1, "{done:?}");
        assert_eq!(place.names(), [""; 0]);
    }
    RAN
}

fn automatic(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let done = place.overshot(&["demo", "--size", "100KB"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    // Without a GPU it says so, and runs on the CPU and on an emulated device.
    let checks = if done.stdout.contains("No GPU was found") { 2 } else { 1 };
    assert_eq!(done.stdout.matches("Checked:").count(), checks, "{done:?}");
    if checks == 2 {
        // The emulated device shows how its stages overlap.
        for part in ["\nstage  ", "\ncopy in  ", "emulated: overlap: ", "emulated: bottleneck: "] {
            assert!(done.stdout.contains(part), "no '{part}' in {}", done.stdout);
        }
    }
    RAN
}

fn keep(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    fs::create_dir(place.path("here")).unwrap();
    let done = place.overshot(&["demo", "--size", "64KiB", "--keep", "--dir", "here", "--device", device]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let folder = fs::read_dir(place.path("here")).unwrap().next().unwrap().unwrap().path();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.npy", "b.npy", "c.npy"]);
    RAN
}

fn space(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let done = place.overshot(&["demo", "--size", "1EB", "--device", device]);
    done.is_error(1, &["needs", "free", "--size"]);
    place.overshot(&["demo", "--dir", "none", "--device", device]).is_error(1, &["none", "--dir"]);
    assert_eq!(place.names(), [""; 0]);
    RAN
}
