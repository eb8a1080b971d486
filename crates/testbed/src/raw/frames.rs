//! HTTP/2 by hand: header fields are sent as they are, in any order, number and spelling.
//!
//! A library sends no upper-case name, no second `:path` and no control character. An attacker does.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{connect, in_time};

/// One header field: name and value.
pub type Field = (Vec<u8>, Vec<u8>);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames: RFC 9113, section 6.
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const ACKNOWLEDGED: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
const STREAM: u32 = 1;

/// Sends these fields as one request without a body, on a connection of its own, and returns the status of the answer.
///
/// # Errors
/// [`super::NoAnswer`] when nothing comes in 5 s; another one when the server closes the connection or resets the stream.
pub async fn once(address: SocketAddr, fields: &[Field]) -> Result<u16> {
    let mut stream = connect(address).await?;
    in_time(async {
        stream.write_all(PREFACE).await?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])?).await?;
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, STREAM, &block)?).await?;
        answer(&mut stream).await
    })
    .await
}

async fn answer(stream: &mut TcpStream) -> Result<u16> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.context("the connection was closed")?;
        let [a, b, c, kind, flags, rest @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let id = u32::from_be_bytes(rest) & 0x7fff_ffff;
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload).await.context("the connection was closed")?;
        match (kind, id) {
            (SETTINGS, _) if flags & ACKNOWLEDGED == 0 => {
                stream.write_all(&frame(SETTINGS, ACKNOWLEDGED, 0, &[])?).await?;
            }
            (HEADERS, STREAM) => {
                let skipped = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
                return status(payload.get(skipped..).unwrap_or_default());
            }
            (RESET, STREAM) => bail!("the stream was reset"),
            (GO_AWAY, _) => bail!("the connection was closed: {payload:02x?}"),
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Vec<u8>> {
    // The default of SETTINGS_MAX_FRAME_SIZE: no CONTINUATION is sent here.
    ensure!(payload.len() <= 16_384, "{} bytes of fields are more than a frame holds", payload.len());
    let [_, a, b, c] = u32::try_from(payload.len())?.to_be_bytes();
    Ok([&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat())
}

/// A field with a new name, never indexed, without Huffman coding: RFC 7541, section 6.2.3.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0x10], &length(name.len())[..], name, &length(value.len()), value].concat()
}

/// A length in a prefix of seven bits: RFC 7541, section 5.1.
fn length(length: usize) -> Vec<u8> {
    let low = |value: usize| u8::try_from(value & 0x7f).unwrap_or_default();
    if length < 127 {
        return vec![low(length)];
    }
    let (mut bytes, mut rest) = (vec![127], length - 127);
    while rest >= 128 {
        bytes.push(low(rest) | 0x80);
        rest >>= 7;
    }
    bytes.push(low(rest));
    bytes
}

/// The value of `:status`, which is the first field of every answer; this is the first answer of its connection, so that
/// the dynamic table is empty.
fn status(block: &[u8]) -> Result<u16> {
    // A change of the table's size may come before: RFC 7541, section 6.3. None that matters is longer than a few bytes.
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20).unwrap_or(0);
    let block = &block[start..];
    let Some((&first, rest)) = block.split_first() else { bail!("an empty header block") };
    let indexed = [(0x88, 200), (0x89, 204), (0x8a, 206), (0x8b, 304), (0x8c, 400), (0x8d, 404), (0x8e, 500)];
    if let Some((_, status)) = indexed.iter().find(|(byte, _)| *byte == first) {
        return Ok(*status);
    }
    // Literal with the name of an entry 8 to 14 of the static table, with indexing, without, or never.
    let name = if first & 0x40 == 0 { first & 0x0f } else { first & 0x3f };
    ensure!((8..=14).contains(&name), "the first field is not :status: {block:02x?}");
    let Some((&length, text)) = rest.split_first() else { bail!("a field without a value") };
    let text = text.get(..usize::from(length & 0x7f)).context("a value that is cut off")?;
    let text = if length & 0x80 == 0 { String::from_utf8_lossy(text).into_owned() } else { digits(text) };
    text.parse().with_context(|| format!("status {text:?}"))
}

/// Digits in Huffman code: RFC 7541, appendix B. What is none ends them.
fn digits(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0_u8, |sum, bit| sum << 1 | bit);
    let (mut text, mut rest) = (String::new(), &bits[..]);
    loop {
        let digit = match (rest.get(..5).map(number), rest.get(..6).map(number)) {
            (Some(short @ 0..=2), _) => (5, short),
            (_, Some(long @ 25..=31)) => (6, long - 22),
            _ => return text,
        };
        text.push(char::from(b'0' + digit.1));
        rest = &rest[digit.0..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_coded_as_the_standard_has_it() {
        // The examples of RFC 7541, appendix C.1, with a prefix of seven bits.
        assert_eq!(length(10), [10]);
        assert_eq!(length(126), [126]);
        assert_eq!(length(127), [127, 0]);
        assert_eq!(length(1337), [127, 0xba, 0x09]);
    }

    #[test]
    fn a_status_is_read_in_every_form() {
        for (block, wanted) in [
            (&[0x88][..], 200),
            (&[0x8d, 0x40], 404),
            // RFC 7541, appendix C.6.1: 302 in Huffman code.
            (&[0x48, 0x82, 0x64, 0x02], 302),
            // C.5.1: the same without.
            (&[0x48, 0x03, 0x33, 0x30, 0x32], 302),
            (&[0x08, 0x03, 0x35, 0x30, 0x33], 503),
            (&[0x18, 0x03, 0x34, 0x30, 0x31], 401),
            (&[0x20, 0x88], 200),
        ] {
            assert_eq!(status(block).unwrap(), wanted, "{block:02x?}");
        }
        for wrong in [&[][..], &[0x82], &[0x48], &[0x48, 0x03, 0x33]] {
            assert!(status(wrong).is_err(), "{wrong:02x?}");
        }
    }
}
