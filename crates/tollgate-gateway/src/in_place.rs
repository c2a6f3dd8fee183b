//! Constructs large values in place. `Box::new(value)` builds the value on the stack and copies all of it into the box. For a future,
//! these are kilobytes of space for its later states, to which nothing was written yet.

use std::pin::Pin;

/// Boxes what `make` returns without copying it.
#[inline]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// Boxes and pins the future that `make` returns without copying it.
#[inline]
pub(crate) fn pinned<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}
