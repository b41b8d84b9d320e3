//! The permissions of a file that replaces another one: its mode, owner, group and access control list.

use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, Uid, accessat, fchmod, fchown, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Only the permission bits of the mode: bits such as `setuid` are not meant for data.
const PERMISSIONS: u32 = 0o777;
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;

/// The attributes that a file gets from the file that it replaces.
pub(super) struct Rights {
    mode: u32,
    owner: u32,
    group: u32,
    /// The access control list in the format of the system, if there is one.
    list: Option<Vec<u8>>,
}

impl Rights {
    pub(super) fn of(path: &Path, metadata: &std::fs::Metadata) -> Self {
        let mode = metadata.mode() & PERMISSIONS;
        Rights { mode, owner: metadata.uid(), group: metadata.gid(), list: access_list(path) }
    }

    /// Applies these permissions to a file that only we may read, and never grants more. Returns the attributes
    /// that could not be kept, for the user.
    pub(super) fn give(self, file: &File) -> io::Result<Option<String>> {
        let Rights { mut mode, owner, group, list } = self;
        let own = fstat(file)?;
        let mut lost = Vec::new();
        if own.st_uid != owner && fchown(file, Some(Uid::from_raw(owner)), None).is_err() {
            lost.push(format!("its owner was user {owner} and is now user {}", own.st_uid));
        }
        let has_group = own.st_gid == group || fchown(file, None, Some(Gid::from_raw(group))).is_ok();
        if !has_group {
            lost.push(format!("its group was {group} and is now {}", own.st_gid));
        }
        let has_list = set_access_list(file, list.as_deref()).is_ok();
        if !has_list {
            lost.push("its access control list was not kept".into());
        }
        // If the group is another one, or the access list is lost and the mode would apply to the whole group, the
        // group gets the permissions of other users only.
        if !has_group || !has_list {
            mode = mode & !GROUP | (mode & OTHERS) << 3 & mode;
        }
        fchmod(file, Mode::from_raw_mode(mode))?;
        Ok((!lost.is_empty()).then(|| lost.join(", ")))
    }
}

/// Checks whether we may write to a file, according to its permissions.
pub(super) fn may_write(path: &Path) -> io::Result<()> {
    match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        // The kernel is too old to tell.
        Err(Errno::NOSYS | Errno::INVAL) => Ok(()),
        answer => Ok(answer?),
    }
}

#[cfg(target_os = "linux")]
const LIST: &str = "system.posix_acl_access";

#[cfg(target_os = "linux")]
fn access_list(path: &Path) -> Option<Vec<u8>> {
    let mut list = vec![0; rustix::fs::getxattr(path, LIST, &mut [0u8; 0][..]).ok()?];
    let len = rustix::fs::getxattr(path, LIST, &mut list[..]).ok()?;
    list.truncate(len);
    Some(list)
}

#[cfg(target_os = "linux")]
fn set_access_list(file: &File, list: Option<&[u8]>) -> rustix::io::Result<()> {
    match list {
        Some(list) => rustix::fs::fsetxattr(file, LIST, list, rustix::fs::XattrFlags::empty()),
        // The directory may have a default list that every new file gets.
        None => match rustix::fs::fremovexattr(file, LIST) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => done,
        },
    }
}

#[cfg(not(target_os = "linux"))]
fn access_list(_: &Path) -> Option<Vec<u8>> {
    None
}

#[cfg(not(target_os = "linux"))]
fn set_access_list(_: &File, _: Option<&[u8]>) -> rustix::io::Result<()> {
    Ok(())
}
