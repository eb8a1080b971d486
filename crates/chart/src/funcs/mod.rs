//! The functions that templates call: Go's own, sprig's and Helm's.
//!
//! Where Go's function panics, which its templates turn into an error, the error here has the same text.
//!
//! What differs, on purpose:
//!
//! | Functions | Go | Here |
//! |---|---|---|
//! | `keys`, `values` | in any order | sorted |
//! | of dates, random numbers, keys, TOML; `toYamlPretty` | done | refused |
//! | `index` of a string; numbers of a `semver` | `uint8`; `uint64` | `int`; `int64` |
//! | `sortAlpha` of a `[]string` | sorts the argument too | leaves it |
//! | `slice` past the length of a list | shows what its memory holds | refused |
//! | `set`, `unset`, `merge` of `.Values` | give it out as a plain map | keep its type |
//! | strings that are not UTF-8 | like others | refused by functions of characters and as keys |
//! | `printf "%p"` of a map or list | an address | refused |
//! | regular expressions | Unicode 15 | Rust's Unicode; no more than 10 MiB compiled |

mod args;
mod builtin;
mod convert;
mod decimal;
mod dicts;
mod digest;
mod duration;
mod encode;
mod equal;
mod helm;
mod late;
mod lists;
mod logic;
mod math;
mod merge;
mod paths;
mod refused;
mod regex;
mod semver;
mod split;
mod strings;
mod text;
mod url;
mod words;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::value::{Function, Signature};

/// A function of a table.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    signature: &'static Signature,
    function: Function,
}

/// Makes a table: a name, the types of the parameters, and after a semicolon the type of those that may repeat.
macro_rules! table {
    ($($name:literal ($($param:expr),* $(; $variadic:expr)?) => $function:expr),* $(,)?) => {
        pub(super) const TABLE: &[crate::funcs::Entry] = {
            #[allow(unused_imports)]
            use crate::value::Type::*;
            &[$(crate::funcs::Entry {
                name: $name,
                signature: &crate::value::Signature {
                    params: &[$($param),*],
                    variadic: table!(@variadic $($variadic)?),
                },
                function: $function,
            }),*]
        };
    };
    (@variadic) => { None };
    (@variadic $variadic:expr) => { Some($variadic) };
}
use table;

/// The tables. Those of Helm come last, as Helm's functions take the place of sprig's.
const TABLES: &[&[Entry]] = &[
    builtin::TABLE,
    convert::TABLE,
    dicts::TABLE,
    digest::TABLE,
    duration::TABLE,
    encode::TABLE,
    lists::TABLE,
    logic::TABLE,
    math::TABLE,
    merge::TABLE,
    paths::TABLE,
    refused::TABLE,
    regex::TABLE,
    semver::TABLE,
    split::TABLE,
    strings::TABLE,
    url::TABLE,
    words::TABLE,
    helm::TABLE,
    late::TABLE,
];

/// The function of this name, or `None`.
pub(crate) fn find(name: &str) -> Option<(&'static Signature, Function)> {
    static INDEX: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(|| {
        TABLES.iter().flat_map(|table| table.iter()).map(|entry| (entry.name, *entry)).collect()
    });
    INDEX.get(name).map(|entry| (entry.signature, entry.function))
}
