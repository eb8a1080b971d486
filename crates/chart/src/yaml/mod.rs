//! YAML as `sigs.k8s.io/yaml` reads and writes it, which is through go-yaml v2 and JSON.
//!
//! ```text
//!   text ─► input.rs ─► scan.rs, scalar.rs, tag.rs ─► parse.rs ─► data.rs, resolve.rs ─► convert.rs ─► Value
//!           characters  tokens                        nodes       Data                   as JSON
//!
//!   Value ─► json.rs ─► text, read as above ─► Data ─► emit.rs, style.rs, order.rs ─► text
//! ```
//!
//! The detour on the way out is that of the original, and shows: U+0085 becomes a space, U+007F is an error.
//!
//! What differs from the original: nesting is bounded by [`crate::Limits`] rather than at 10,000, two keys that are one as
//! JSON are settled for one of them rather than by chance, and so is the order in which keys of several types are printed in
//! error messages.

pub(crate) mod base64;
mod convert;
mod data;
mod emit;
mod input;
pub(crate) mod number;
mod order;
mod parse;
mod resolve;
mod scalar;
mod scan;
mod style;
mod syntax;
mod tag;
#[cfg(test)]
pub(crate) mod tests;
mod time;

pub(crate) use data::{Data, Key, decode};
pub(crate) use syntax::escape;

use crate::Failure;
use crate::json;
use crate::value::{Ctx, Value};

/// Reads one document into an `interface{}`, as `yaml.Unmarshal` does.
pub(crate) fn read(ctx: &mut Ctx, text: &str) -> Result<Value, Failure> {
    read_bytes(ctx, text.as_bytes(), false)
}

/// Reads one document into an `interface{}`, as `yaml.UnmarshalStrict` does, which refuses keys that are there twice.
pub(crate) fn read_strict(ctx: &mut Ctx, text: &str) -> Result<Value, Failure> {
    read_bytes(ctx, text.as_bytes(), true)
}

/// Reads one document that may be in UTF-16 or no text at all.
pub(crate) fn read_bytes(ctx: &mut Ctx, text: &[u8], strict: bool) -> Result<Value, Failure> {
    let value = decode(ctx, text, strict).and_then(|data| convert::to_value(ctx, data));
    value.map_err(|failure| json::within("error converting YAML to JSON", failure))
}

/// Writes a value, as `yaml.Marshal` does.
pub(crate) fn write(ctx: &mut Ctx, value: &Value) -> Result<String, Failure> {
    let style = json::Style { escape_html: true, pretty: false };
    let text = json::write(ctx, value, style)
        .map_err(|failure| json::within("error marshaling into JSON", failure))?;
    from_json(ctx, &text)
}

/// Writes JSON as YAML, as `yaml.JSONToYAML` does.
pub(crate) fn from_json(ctx: &mut Ctx, text: &str) -> Result<String, Failure> {
    let data = decode(ctx, text.as_bytes(), false)?;
    emit::emit(ctx, &data)
}
