//! Sprig's base64 and base32, whose errors are results.

use super::args;
use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "b64enc" (Raw) => |ctx, args| encode(ctx, args::bytes(args, 0), BASE64, 6),
    "b32enc" (Raw) => |ctx, args| encode(ctx, args::bytes(args, 0), BASE32, 5),
    "b64dec" (Raw) => |ctx, args| {
        let bytes = decode64(args::bytes(args, 0))
            .unwrap_or_else(|at| format!("illegal base64 data at input byte {at}").into_bytes());
        args::string(ctx, bytes)
    },
    "b32dec" (Raw) => |ctx, args| {
        let bytes = decode32(args::bytes(args, 0))
            .unwrap_or_else(|at| format!("illegal base32 data at input byte {at}").into_bytes());
        args::string(ctx, bytes)
    },
}

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Encodes with this many bits for each character, and fills up groups of characters that end at a byte.
fn encode(ctx: &mut Ctx, bytes: &[u8], alphabet: &[u8], bits: u32) -> Result<Value, Failure> {
    ctx.room(bytes.len().saturating_mul(2))?;
    let mut out = Vec::with_capacity(bytes.len().saturating_mul(2));
    let (mut buffer, mut held) = (0_u32, 0);
    let symbol = |value: u32| {
        let position = usize::try_from(value & ((1 << bits) - 1)).unwrap_or_default();
        alphabet.get(position).copied().unwrap_or(b'=')
    };
    for &byte in bytes {
        buffer = ((buffer << 8) | u32::from(byte)) & 0xffff;
        held += 8;
        while held >= bits {
            held -= bits;
            out.push(symbol(buffer >> held));
        }
    }
    if held > 0 {
        out.push(symbol(buffer << (bits - held)));
    }
    let group = if bits == 6 { 4 } else { 8 };
    while out.len() % group != 0 {
        out.push(b'=');
    }
    args::string(ctx, out)
}

fn value(alphabet: &[u8], byte: u8) -> Option<u32> {
    let position = alphabet.iter().position(|&symbol| symbol == byte)?;
    u32::try_from(position).ok()
}

fn is_newline(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Decodes, or says at which byte Go's decoder stops.
fn decode64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0_usize;
    let skip_newlines = |at: &mut usize| {
        while text.get(*at).is_some_and(|&byte| is_newline(byte)) {
            *at += 1;
        }
    };
    while at < text.len() {
        let (mut buffer, mut count) = (0_u32, 0_usize);
        let mut error = None;
        while count < 4 {
            let Some(&byte) = text.get(at) else {
                if count == 0 {
                    return Ok(out);
                }
                return Err(at - count);
            };
            at += 1;
            if let Some(value) = value(BASE64, byte) {
                buffer = (buffer << 6) | value;
                count += 1;
                continue;
            }
            if is_newline(byte) {
                continue;
            }
            if byte != b'=' || count < 2 {
                return Err(at - 1);
            }
            if count == 2 {
                skip_newlines(&mut at);
                match text.get(at) {
                    None => return Err(text.len()),
                    Some(b'=') => at += 1,
                    Some(_) => return Err(at - 1),
                }
            }
            skip_newlines(&mut at);
            if at < text.len() {
                error = Some(at);
            }
            break;
        }
        let shift = u32::try_from(4 - count).unwrap_or_default() * 6;
        let [_, bytes @ ..] = (buffer << shift).to_be_bytes();
        out.extend(bytes.iter().take(count.saturating_sub(1)));
        if let Some(error) = error {
            return Err(error);
        }
        if count < 4 {
            break;
        }
    }
    Ok(out)
}

fn decode32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text.iter().copied().filter(|&byte| !is_newline(byte)).collect();
    let length = text.len();
    let mut out = Vec::with_capacity(length);
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        let (mut buffer, mut count) = (0_u64, 0_usize);
        let mut ended = false;
        while count < 8 {
            let Some((&byte, tail)) = rest.split_first() else {
                return Err(length - count);
            };
            rest = tail;
            if byte == b'=' && count >= 2 && rest.len() < 8 {
                if rest.len() + count < 7 {
                    return Err(length);
                }
                for place in 0..(7 - count) {
                    if rest.get(place).is_some_and(|&byte| byte != b'=') {
                        return Err((length - rest.len() + place).saturating_sub(1));
                    }
                }
                if matches!(count, 1 | 3 | 6) {
                    return Err(length - rest.len() - 1);
                }
                ended = true;
                break;
            }
            let Some(value) = value(BASE32, byte) else { return Err(length - rest.len() - 1) };
            buffer = (buffer << 5) | u64::from(value);
            count += 1;
        }
        let shift = 5 * u32::try_from(8 - count).unwrap_or_default();
        let [_, _, _, bytes @ ..] = (buffer << shift).to_be_bytes();
        out.extend(bytes.iter().take(count * 5 / 8));
        if ended {
            break;
        }
    }
    Ok(out)
}
