//! The second process: takes up to 95 % of the memory of a GPU and frees it, in random steps, until its standard input
//! ends.

use std::error::Error;
use std::io::Read;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys;

use crate::Random;

/// The part of the memory that is taken at most, in percent.
const MOST: u64 = 95;
const PAUSE: Duration = Duration::from_millis(20);

fn check(call: &str, result: sys::CUresult) -> Result<(), String> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{call} failed: {result:?}")) }
}

pub(crate) fn run(gpu: i32) -> Result<(), Box<dyn Error>> {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            has_ended.store(true, Ordering::Relaxed);
        });
        let taken = take_and_free(gpu, &has_ended);
        if let Err(error) = &taken {
            eprintln!("the memory of GPU {gpu} is not taken any more: {error}");
        }
        Ok(taken?)
    })
}

fn take_and_free(gpu: i32, has_ended: &AtomicBool) -> Result<(), String> {
    let (mut device, mut context) = (0, ptr::null_mut());
    // SAFETY: the variables outlive the calls that write them; the context is retained until the process ends.
    unsafe {
        check("cuInit", sys::cuInit(0))?;
        check("cuDeviceGet", sys::cuDeviceGet(&mut device, gpu))?;
        check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
    }
    let (mut blocks, mut random) = (Vec::new(), Random(gpu as u64));
    while !has_ended.load(Ordering::Relaxed) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: as above.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        let spare = (total as u64 * (100 - MOST) / 100) as usize;
        // Mostly takes; sometimes frees one block, and rarely all of them.
        match random.below(8) {
            0 => blocks.drain(..).try_for_each(release)?,
            1 | 2 if !blocks.is_empty() => release(blocks.swap_remove(random.below(blocks.len())))?,
            _ if free > spare => {
                let (bytes, mut block) = (1 + random.below(free - spare), 0);
                // SAFETY: as above. There may be less memory by now.
                if unsafe { sys::cuMemAlloc_v2(&mut block, bytes) } == sys::CUresult::CUDA_SUCCESS {
                    blocks.push(block);
                }
            }
            _ => {}
        }
        thread::sleep(PAUSE);
    }
    blocks.drain(..).try_for_each(release)?;
    // SAFETY: retained above, and not used any more.
    check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) })
}

fn release(block: sys::CUdeviceptr) -> Result<(), String> {
    // SAFETY: it was allocated, and is freed once.
    check("cuMemFree", unsafe { sys::cuMemFree_v2(block) })
}
