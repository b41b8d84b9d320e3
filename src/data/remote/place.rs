//! What a URL leads to: a store, and the name of an object there.

use super::runtime::{OfProcess, wait_for};
use crate::data::url::{check, scheme};
use crate::error::{Error, Result};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::ClientConfigKey;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, Error as StoreError, ObjectStore, RetryConfig};
use std::collections::HashMap;
use std::convert::Infallible;
use std::env;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a request is sent again.
const RETRIES: usize = 8;

/// The stores of this process, each with its connections: by what a URL has in front of the object's name, and by the
/// variables of the environment that matter to stores.
static STORES: OfProcess<Mutex<HashMap<String, Arc<dyn ObjectStore>>>> = OfProcess::new();

/// An object of a store, or the names of several ones.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub store: Arc<dyn ObjectStore>,
    pub key: Key,
}

impl Place {
    /// Returns what a URL leads to. No request is sent.
    pub(super) fn of(url: &Path) -> Result<Place> {
        let (base, name) = parts(url)?;
        if name.starts_with('/') {
            return Err(no_object(url, "the name of an object begins with '/'".into()));
        }
        let key = Key::from_url_path(name).map_err(|error| no_object(url, text_of(&error)))?;
        let store = store(url, base).map_err(|error| no_object(url, text_of(&error)))?;
        Ok(Place { store, key })
    }
}

/// Returns the error for a URL that no object can have.
pub(super) fn no_object(url: &Path, what: String) -> Error {
    let (problem, remedy) = ("is no URL of an object".into(), "check the URL".into());
    Error::File { path: url.into(), problem, remedy, cause: Some(io::Error::other(what)) }
}

/// Returns what a URL has in front of the object's name, and the name. Errors do not show what is secret in a URL.
pub(super) fn parts(url: &Path) -> Result<(&str, &str)> {
    check(url)?;
    let text = url.to_str().ok_or_else(|| Error::file(url, "is no URL, which is UTF-8", "check the URL"))?;
    let begin = text.find("://").map_or(0, |at| at + 3);
    let end = text[begin..].find('/').map_or(text.len(), |at| begin + at);
    if is_web(url) {
        let shown = text.split('?').next().unwrap_or_default();
        let host = &shown[begin..end.min(shown.len())];
        if let Some((secret, _)) = host.rsplit_once('@') {
            let shown = format!("{}{}", &text[..begin], &shown[begin + secret.len() + 1..]);
            let remedy = "write the URL without what stands in front of the '@'";
            return Err(Error::file(shown, "has a user's name, which is not sent to the server", remedy));
        }
        if shown.len() < text.len() {
            let remedy = "write the URL without a query; a '?' of the name itself is %3F";
            return Err(Error::file(shown, "has a query, which is not sent to the server", remedy));
        }
    }
    Ok((&text[..end], text[end..].strip_prefix('/').unwrap_or_default()))
}

/// Returns whether a URL is that of a web server, and not of an object store.
pub(super) fn is_web(url: &Path) -> bool {
    scheme(url).is_some_and(|scheme| scheme.to_ascii_lowercase().starts_with("http"))
}

/// How often a request is sent again.
pub(super) fn retries() -> usize {
    env::var("OVERSHOT_RETRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(RETRIES)
}

fn store(url: &Path, base: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut variables: Vec<(String, String)> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| {
            ["AWS_", "AZURE_", "GOOGLE_", "HTTP_", "OVERSHOT_"].iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    variables.sort();
    let name = format!("{base} {variables:?}");
    let Ok(stores) = STORES.get(|| Ok::<_, Infallible>(Mutex::default()));
    let mut stores = stores.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = stores.get(&name) {
        return Ok(store.clone());
    }
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
        max_retries: retries(),
        // So long that the number of retries is the limit.
        retry_timeout: Duration::from_secs(3600),
    };
    let scheme = scheme(url).unwrap_or_default().to_ascii_lowercase();
    let store: Arc<dyn ObjectStore> = match &*scheme {
        "s3" | "s3a" => Arc::new(AmazonS3Builder::from_env().with_url(base).with_retry(retry).build()?),
        "gs" => Arc::new(GoogleCloudStorageBuilder::from_env().with_url(base).with_retry(retry).build()?),
        "http" | "https" => {
            let mut options = ClientOptions::new().with_allow_http(scheme == "http");
            for (name, value) in &variables {
                let key = name.strip_prefix("HTTP_").map(|name| name.to_ascii_lowercase().parse::<ClientConfigKey>());
                if let Some(Ok(key)) = key {
                    options = options.with_config(key, value);
                }
            }
            Arc::new(HttpBuilder::new().with_url(base).with_client_options(options).with_retry(retry).build()?)
        }
        _ => Arc::new(MicrosoftAzureBuilder::from_env().with_url(base).with_retry(retry).build()?),
    };
    stores.insert(name, store.clone());
    Ok(store)
}

/// Returns `None` where there is no object.
#[cfg(feature = "zarr")]
pub(super) async fn found<T>(answer: impl Future<Output = object_store::Result<T>>) -> object_store::Result<Option<T>> {
    match answer.await {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for a request.
pub(super) fn request<T: Send>(url: &Path, future: impl Future<Output = object_store::Result<T>> + Send) -> Result<T> {
    match wait_for(future) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(store_error(url, "cannot be opened".into(), &error)),
        Err(error) => Err(thread_error(url, "cannot be opened".into(), error)),
    }
}

/// What to do if a server does not send parts of files.
const NO_PARTS: &str = "copy the data to a disk first: the server does not send parts of files";

/// Returns the error for an answer of a store.
pub(super) fn store_error(url: &Path, problem: String, answer: &StoreError) -> Error {
    let text = text_of(answer);
    let credentials = "check the URL, and the credentials in the environment (AWS_..., GOOGLE_..., AZURE_...)";
    let remedy = match answer {
        StoreError::NotFound { .. } => "check the URL; that of a folder ends with '/'",
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => credentials,
        // The crate has no other error for a list that is refused.
        _ if ["Unauthorized", "Forbidden"].iter().any(|status| text.contains(status)) => credentials,
        StoreError::NotSupported { .. } => NO_PARTS,
        // Of a server that speaks the protocol of an object store.
        _ if text.contains("non-partial") => NO_PARTS,
        _ => "check the URL, the network and the server",
    };
    let kind = match answer {
        StoreError::PermissionDenied { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let cause = Some(io::Error::new(kind, text));
    Error::File { path: url.into(), problem, remedy: remedy.into(), cause }
}

/// Returns the error for a request that no thread can wait for.
pub(super) fn thread_error(url: &Path, problem: String, error: io::Error) -> Error {
    let remedy = "close other programs, or raise the limit of threads (ulimit -u)";
    Error::File { path: url.into(), problem, remedy: remedy.into(), cause: Some(error) }
}

/// Returns the message of an error with those of its causes that it does not have itself, as one line.
pub(super) fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    /// Servers may send pages of text.
    const LONGEST: usize = 500;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let own = inner.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        cause = inner.source();
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words,
    }
}
