//! The codecs in the description of an array: which of them are read, and what some writers leave out.

use serde_json::{Value, json};

/// The codecs that the guide to formats lists, and those of the layout of arrays of version 3. The crate zarrs has
/// others, which were not compared with what zarr-python reads; `fixedscaleoffset` of it gives other numbers.
const READ: [&str; 13] = [
    "adler32",
    "blosc",
    "bytes",
    "bz2",
    "crc32c",
    "endian",
    "fletcher32",
    "gzip",
    "sharding_indexed",
    "shuffle",
    "transpose",
    "zlib",
    "zstd",
];

/// Codecs whose level zarr-python does not need, as it says nothing about what is read, but the crate zarrs does.
const WITHOUT_LEVEL: [&str; 2] = ["bz2", "zlib"];

/// Completes the description of an array for the crate zarrs.
///
/// # Errors
/// Returns what is wrong if a codec is not one of those that are read.
pub(super) fn complete(described: &mut Value) -> Result<(), String> {
    all(described, &["codecs", "filters"])?;
    described.get_mut("compressor").map_or(Ok(()), one)
}

/// Completes the codecs in these lists.
fn all(described: &mut Value, lists: &[&str]) -> Result<(), String> {
    for list in lists {
        let codecs = described.get_mut(list).and_then(Value::as_array_mut);
        codecs.into_iter().flatten().try_for_each(one)?;
    }
    Ok(())
}

fn one(codec: &mut Value) -> Result<(), String> {
    let is_v2 = codec.get("id").is_some();
    let name = codec.as_str().or(codec["id"].as_str()).or(codec["name"].as_str());
    // What has no name, such as the null of version 2, is no codec, or the crate says what is wrong.
    let Some(name) = name.map(str::to_owned) else { return Ok(()) };
    // Codecs of numcodecs are called `numcodecs.zlib` in version 3.
    let own = name.strip_prefix("numcodecs.").unwrap_or(&name);
    if !READ.contains(&own) {
        return Err(format!("it has the codec '{name}', which is not supported"));
    }
    if WITHOUT_LEVEL.contains(&own) {
        if codec.is_string() {
            *codec = json!({ "name": name });
        }
        let settings = if is_v2 { &mut *codec } else { &mut codec["configuration"] };
        if settings.is_null() {
            *settings = json!({});
        }
        if let Some(settings) = settings.as_object_mut() {
            settings.entry("level").or_insert_with(|| json!(1));
        }
    }
    // Those of the chunks in a shard, and of its index.
    codec.get_mut("configuration").map_or(Ok(()), |settings| all(settings, &["codecs", "index_codecs"]))
}
