//! Appends bytes to a file completely or not at all.

use std::{
    fs::File,
    io::{self, Write},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailState {
    /// The file ends with a whole frame.
    Clean,
    /// The file ends with part of a frame.
    Dirty,
}

#[derive(Debug)]
pub(super) struct AppendError {
    pub(super) error: io::Error,
    pub(super) tail: TailState,
}

/// The file operations of [`append`]; a trait so that tests can fail them.
pub(super) trait AppendTarget {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

impl AppendTarget for &File {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Appends frames with one write(2), and continues after a short write. Frames that cannot be completed are removed by truncating the
/// file to `length`, its size before.
pub(super) fn append(file: &mut impl AppendTarget, frames: &[u8], length: u64) -> Result<(), AppendError> {
    let mut done = 0;
    let error = loop {
        match file.write_once(&frames[done..]) {
            Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
            Ok(written) if done + written == frames.len() => return Ok(()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let tail = if done == 0 || file.truncate(length).is_ok() { TailState::Clean } else { TailState::Dirty };
    Err(AppendError { error, tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with a capacity in bytes that may fail to truncate.
    struct SmallDisk {
        bytes: Vec<u8>,
        capacity: usize,
        can_truncate: bool,
    }

    impl AppendTarget for SmallDisk {
        fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.capacity - self.bytes.len());
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.bytes.extend_from_slice(&bytes[..written]);
            Ok(written)
        }

        fn truncate(&mut self, length: u64) -> io::Result<()> {
            if !self.can_truncate {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            self.bytes.truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    #[test]
    fn frame_that_exceeds_the_disk_leaves_no_partial_write() {
        let mut disk = SmallDisk { bytes: Vec::new(), capacity: 10, can_truncate: true };
        append(&mut disk, b"whole", 0).unwrap();
        let refused = append(&mut disk, b"too long", 5).unwrap_err();
        assert_eq!((refused.tail, refused.error.kind()), (TailState::Clean, io::ErrorKind::StorageFull));
        assert_eq!(disk.bytes, b"whole");
        append(&mut disk, b"again", 5).unwrap();
        assert_eq!(disk.bytes, b"wholeagain");
    }

    #[test]
    fn failed_truncation_is_reported_as_a_dirty_tail() {
        let mut disk = SmallDisk { bytes: Vec::new(), capacity: 3, can_truncate: false };
        assert_eq!(append(&mut disk, b"whole", 0).unwrap_err().tail, TailState::Dirty);
        assert_eq!(append(&mut disk, b"x", 3).unwrap_err().tail, TailState::Clean);
    }
}
