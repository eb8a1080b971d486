//! Sprig's functions of paths, where those of the operating system are those of Linux.

use super::args;
use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "base" (Str) => |ctx, args| ctx.text(base(args::text(args, 0))),
    "dir" (Str) => dir,
    "clean" (Str) => |ctx, args| ctx.text(clean(args::text(args, 0))),
    "ext" (Str) => |ctx, args| ctx.text(extension(args::text(args, 0))),
    "isAbs" (Str) => |_, args| Ok(Value::Bool(args::text(args, 0).starts_with('/'))),
    "osBase" (Str) => |ctx, args| ctx.text(base(args::text(args, 0))),
    "osDir" (Str) => dir,
    "osClean" (Str) => |ctx, args| ctx.text(clean(args::text(args, 0))),
    "osExt" (Str) => |ctx, args| ctx.text(extension(args::text(args, 0))),
    "osIsAbs" (Str) => |_, args| Ok(Value::Bool(args::text(args, 0).starts_with('/'))),
}

fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let path = path.trim_end_matches('/');
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => "/",
    }
}

fn dir(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let path = args::text(args, 0);
    let end = path.rfind('/').map_or(0, |slash| slash.saturating_add(1));
    ctx.text(clean(path.get(..end).unwrap_or_default()))
}

fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rfind('.').and_then(|dot| name.get(dot..)).unwrap_or_default()
}

/// `path.Clean`.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}
