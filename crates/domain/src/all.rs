//! All variants of an enum.

/// The variants that strum lists, as an array. Another number of them does not compile.
pub(crate) const fn all<T: Copy, const N: usize>(variants: &[T]) -> [T; N] {
    assert!(variants.len() == N, "another number of variants");
    *variants.first_chunk().expect("as many as that")
}
