// SPDX-License-Identifier: Apache-2.0
//! `Debug` of types whose contents do not belong in logs: rows, secrets, or what nobody would read.

/// Implements `Debug` for a type by its name and the values that are named, each with where it is found.
///
/// # Examples
///
/// ```
/// struct Bundle<T> {
///     token: [u8; 16],
///     rows: Vec<T>,
/// }
/// sparkawait_core::opaque_debug!([T] Bundle<T>, rows: rows.len());
///
/// let bundle = Bundle { token: [7; 16], rows: vec![1, 2] };
/// assert_eq!(bundle.token.len(), 16);
/// assert_eq!(format!("{bundle:?}"), "Bundle { rows: 2, .. }");
/// ```
#[macro_export]
macro_rules! opaque_debug {
    (
        $([$($generics:tt)+])? $name:ident $(<$($argument:tt),+>)?
        $(, $shown:ident: $($part:ident $(($($nothing:tt)*))?).+)*
    ) => {
        impl $(<$($generics)+>)? ::std::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($shown), &self.$($part $(($($nothing)*))?).+))*
                    .finish_non_exhaustive()
            }
        }
    };
}
