//! The limits of the machine.

use std::fs;

use serde_json::Value;

use crate::tools::{CaseFolder, Done, RAN, done, not_run};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("the limits are measured, printed and stored", limits),
    ("limits that cannot be stored are printed", not_stored),
    ("a folder or a device that is missing", refused),
];

fn bench(place: &CaseFolder, cache: &str, args: &[&str]) -> Done {
    done(place.command(&[&["bench"], args].concat()).env("OVERSHOT_CACHE", cache).output().unwrap())
}

/// Every number below a value, except for spreads, which may be 0.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => vec![number.as_f64().unwrap()],
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Object(values) => {
            values.iter().filter(|(key, _)| *key != "spread").flat_map(|(_, value)| numbers(value)).collect()
        }
        _ => vec![],
    }
}

fn limits(device: &str) -> Outcome {
    if device.starts_with("emulated") {
        let place = CaseFolder::new(device);
        bench(&place, "cache", &["--limits", "--device", device]).is_error(2, &["virtual", "--device"]);
        assert_eq!(place.names(), [""; 0]);
        return RAN;
    }
    let place = CaseFolder::new(device);
    let printed = bench(&place, "cache", &["--limits", "--json", "--device", device]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let path = printed.stderr.trim().strip_prefix("saved in ").unwrap_or_else(|| panic!("{printed:?}"));
    let limits: Value = serde_json::from_str(&printed.stdout).unwrap();
    let kept: Value = serde_json::from_slice(&fs::read(place.path(path)).unwrap()).unwrap();
    assert_eq!(kept, limits);
    // No measured file remains.
    assert_eq!(place.names(), ["cache"]);

    let host = &limits["host"];
    for list in ["copy", "two_in_one_out", "stage", "drain", "read", "page_cache"] {
        let list = host[list].as_array().unwrap();
        let spreads = list.iter().map(|rate| rate["spread"].as_f64().unwrap());
        assert!(spreads.into_iter().all(|spread| (0.0..=1.0).contains(&spread)), "{host}");
        assert_eq!(list.first().unwrap()["threads"], 1, "{host}");
        assert_eq!(list.last().unwrap()["threads"], host["cores"], "{host}");
    }
    let is_cpu = device == "cpu";
    assert_eq!(limits["devices"].as_array().unwrap().is_empty(), is_cpu, "{limits}");
    assert_eq!(limits["all_devices"].is_null(), limits["devices"].as_array().unwrap().len() < 2, "{limits}");
    let mut measured = limits.clone();
    // It is 0 where the system does not report it.
    measured["host"]["last_level_cache_bytes"] = Value::Null;
    assert!(numbers(&measured).iter().all(|number| number.is_finite() && *number > 0.0), "{limits}");
    if is_cpu {
        let again = bench(&place, "cache", &["--limits", "--device", device]);
        let date = limits["date"].as_str().unwrap();
        assert!(again.stdout.contains(&format!("replaced the measurement of {date}")), "{again:?}");
        assert!(!printed.stderr.contains("replaced"), "{printed:?}");
    }
    RAN
}

fn not_stored(device: &str) -> Outcome {
    if device != "cpu" {
        return not_run("the same on every device");
    }
    let place = CaseFolder::new(device);
    // Without --limits it measures them, too, because there is no other bench.
    let printed = bench(&place, "", &["--device", device, "--dir", "."]);
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{printed:?}");
    for part in ["threads ", "a new file: ", "note: not saved", "OVERSHOT_CACHE"] {
        assert!(printed.stdout.contains(part), "no '{part}' in {printed:?}");
    }
    assert_eq!(place.names(), [""; 0]);
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    bench(&place, "cache", &["--limits", "--device", "cpu", "--dir", "none"]).is_error(1, &["none", "not a folder"]);
    bench(&place, "cache", &["--limits", "--device", "abacus"]).is_error(2, &["abacus"]);
    bench(&place, "cache", &["--limits", "--device", "cuda:99"]).is_error(1, &["cuda"]);
    assert_eq!(place.names(), [""; 0]);
    RAN
}
