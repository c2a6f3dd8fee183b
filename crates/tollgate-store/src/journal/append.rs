//! Appending one frame to a segment, and what a failure leaves behind.

use std::{
    fs::File,
    io::{self, Write},
};

/// What a failed append leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailState {
    /// The file ends with its last whole frame.
    Clean,
    /// Part of a frame stands at the end.
    Dirty,
}

/// A frame that was not written.
#[derive(Debug)]
pub(super) struct AppendError {
    /// The system's answer.
    pub(super) error: io::Error,
    /// What stands at the end of the file now.
    pub(super) tail: TailState,
}

/// What [`append`] needs of a file.
pub(super) trait AppendTarget {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl AppendTarget for &File {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Appends one frame with one write(2). Where the system takes only a part, the rest is tried; what cannot be
/// completed is cut off again.
pub(super) fn append(file: &mut impl AppendTarget, frame: &[u8], length: u64) -> Result<(), AppendError> {
    let mut done = 0;
    let error = loop {
        match file.write_once(&frame[done..]) {
            Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
            Ok(taken) if done + taken == frame.len() => return Ok(()),
            Ok(taken) => done += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let tail = if done == 0 || file.cut(length).is_ok() { TailState::Clean } else { TailState::Dirty };
    Err(AppendError { error, tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that takes `room` bytes and may refuse to be cut.
    struct SmallDisk {
        bytes: Vec<u8>,
        room: usize,
        can_cut: bool,
    }

    impl AppendTarget for SmallDisk {
        fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len());
            if taken == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            self.bytes.truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    #[test]
    fn a_frame_that_does_not_fit_on_disk_leaves_nothing_behind() {
        let mut disk = SmallDisk { bytes: Vec::new(), room: 10, can_cut: true };
        append(&mut disk, b"whole", 0).unwrap();
        let refused = append(&mut disk, b"too long", 5).unwrap_err();
        assert_eq!((refused.tail, refused.error.kind()), (TailState::Clean, io::ErrorKind::StorageFull));
        assert_eq!(disk.bytes, b"whole");
        append(&mut disk, b"again", 5).unwrap();
        assert_eq!(disk.bytes, b"wholeagain");
    }

    #[test]
    fn a_tail_that_cannot_be_cut_is_reported() {
        let mut disk = SmallDisk { bytes: Vec::new(), room: 3, can_cut: false };
        assert_eq!(append(&mut disk, b"whole", 0).unwrap_err().tail, TailState::Dirty);
        assert_eq!(append(&mut disk, b"x", 3).unwrap_err().tail, TailState::Clean);
    }
}
