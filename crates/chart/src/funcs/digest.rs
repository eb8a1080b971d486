//! Sprig's checksums.

use sha2::{Digest, Sha256, Sha512};

use super::args;
use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "sha256sum" (Raw) => |ctx, args| hex(ctx, args, |bytes| Sha256::digest(bytes).to_vec()),
    "sha512sum" (Raw) => |ctx, args| hex(ctx, args, |bytes| Sha512::digest(bytes).to_vec()),
    "sha1sum" (Raw) => |ctx, args| hex(ctx, args, sha1),
    "adler32sum" (Raw) => |ctx, args| {
        ctx.step(args::bytes(args, 0).len() / 64)?;
        let (mut low, mut high) = (1_u32, 0_u32);
        for &byte in args::bytes(args, 0) {
            low = (low + u32::from(byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        ctx.text(((high << 16) | low).to_string())
    },
}

fn hex(ctx: &mut Ctx, args: &[Value], digest: fn(&[u8]) -> Vec<u8>) -> Result<Value, Failure> {
    let bytes = args::bytes(args, 0);
    ctx.step(bytes.len() / 64)?;
    let text: Vec<String> = digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    ctx.text(text.concat())
}

/// SHA-1, for what charts name by it; it protects nothing here.
#[expect(clippy::many_single_char_names, reason = "as the standard names them")]
fn sha1(bytes: &[u8]) -> Vec<u8> {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    let bits = u64::try_from(bytes.len()).unwrap_or_default().wrapping_mul(8);
    message.extend_from_slice(&bits.to_be_bytes());
    for block in message.chunks(64) {
        let mut words: Vec<u32> = block
            .chunks(4)
            .map(|word| word.iter().fold(0, |sum, &byte| (sum << 8) | u32::from(byte)))
            .collect();
        for place in 16..80 {
            let word = [3, 8, 14, 16].iter().fold(0, |sum, back| sum ^ words.get(place - back).unwrap_or(&0));
            words.push(word.rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (round, word) in words.iter().enumerate() {
            let (mixed, constant) = match round {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999_u32),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(mixed)
                .wrapping_add(e)
                .wrapping_add(constant)
                .wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, more) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(more);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}
