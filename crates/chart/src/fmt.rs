//! Go's `fmt` for [`Value`].

mod format;
mod number;
mod print;
mod quote;

use crate::Failure;
use crate::value::{Ctx, Heap, Value};

pub(crate) use number::{NumberError, float, parse_float, parse_int};
pub(crate) use quote::{is_printable, quote};

/// What `fmt.Sprint` prints of one value, which is what `{{ value }}` prints. Nil is `<nil>`.
pub(crate) fn display(ctx: &mut Ctx, value: &Value) -> Result<String, Failure> {
    if let Value::Str(text) = value {
        ctx.room(text.len())?;
        return Ok(text.as_ref().to_owned());
    }
    let bytes = sprint(ctx, std::slice::from_ref(value))?;
    String::from_utf8(bytes).map_err(|_| not_text())
}

/// `fmt.Sprint`, in bytes as the arguments may hold strings that are not UTF-8.
pub(crate) fn sprint(ctx: &mut Ctx, args: &[Value]) -> Result<Vec<u8>, Failure> {
    let mut printer = print::Printer::new(ctx);
    let mut previous_is_string = false;
    for (position, arg) in args.iter().enumerate() {
        let is_string = kind(arg) == "string";
        if position > 0 && !is_string && !previous_is_string {
            printer.write(b" ");
        }
        printer.arg(arg, 'v')?;
        previous_is_string = is_string;
    }
    printer.finish()
}

/// `fmt.Sprintln`.
pub(crate) fn sprintln(ctx: &mut Ctx, args: &[Value]) -> Result<Vec<u8>, Failure> {
    let mut printer = print::Printer::new(ctx);
    for (position, arg) in args.iter().enumerate() {
        if position > 0 {
            printer.write(b" ");
        }
        printer.arg(arg, 'v')?;
    }
    printer.write(b"\n");
    printer.finish()
}

/// `fmt.Sprintf`.
pub(crate) fn sprintf(ctx: &mut Ctx, format: &[u8], args: &[Value]) -> Result<Vec<u8>, Failure> {
    let mut printer = print::Printer::new(ctx);
    printer.format(format, args)?;
    printer.finish()
}

/// The Go type of a value, as `%T` prints it.
pub(crate) fn type_name(heap: &Heap, value: &Value) -> &'static str {
    match value {
        Value::Nil => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Int64(_) => "int64",
        Value::Float(_) => "float64",
        Value::Str(_) | Value::Raw(_) => "string",
        Value::Bytes(_) => "[]uint8",
        Value::List(list) => list.element.slice_name(),
        Value::Map(map) => heap.map(*map).kind.name(),
        Value::Host(host) => host.type_name(),
    }
}

/// The reflect kind of a value, as `kindOf` prints it.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Int64(_) => "int64",
        Value::Float(_) => "float64",
        Value::Str(_) | Value::Raw(_) => "string",
        Value::Bytes(_) | Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Host(host) => host.kind(),
    }
}

fn not_text() -> Failure {
    Failure::error("a string that is not UTF-8 cannot be printed here")
}
