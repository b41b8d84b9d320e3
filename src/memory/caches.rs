//! The caches of all engines of the process. What one engine keeps for its next run is freed if a run of another one
//! finds too little memory on the same device.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A cache of memory on a device.
pub(super) trait DeviceCache: Send + Sync {
    /// Returns the [number](crate::device::Device::number) of the device.
    fn number(&self) -> usize;

    /// Frees unused device memory, and returns the number of bytes freed.
    fn trim(&self) -> u64;
}

static CACHES: Mutex<Vec<Weak<dyn DeviceCache>>> = Mutex::new(Vec::new());

/// Lets other engines free what is in the cache, as long as it exists.
pub(super) fn register<C: DeviceCache + 'static>(cache: &Arc<C>) {
    let cache: Weak<dyn DeviceCache> = Arc::<C>::downgrade(cache);
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|cache| cache.strong_count() > 0);
    caches.push(cache);
}

/// Frees the unused device memory in the other caches of the same device, and returns the number of bytes freed.
pub(super) fn trim_others<C: DeviceCache>(own: &C) -> u64 {
    let caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<Arc<dyn DeviceCache>> = caches.iter().filter_map(Weak::upgrade).collect();
    // The lock is released first, because the driver is slow, and another engine may have ended meanwhile: then its
    // cache is dropped here.
    drop(caches);
    let is_other = |cache: &Arc<dyn DeviceCache>| {
        cache.number() == own.number() && !std::ptr::addr_eq(Arc::as_ptr(cache), std::ptr::from_ref(own))
    };
    all.iter().filter(|cache| is_other(cache)).map(|cache| cache.trim()).sum()
}
