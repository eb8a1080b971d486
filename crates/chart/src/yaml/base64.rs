//! Base64 in the standard alphabet with padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| chunk.get(at).copied().map_or(0, usize::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 0x3f;
            let character = ALPHABET.get(value).copied().map_or('=', char::from);
            text.push(if digit > chunk.len() { '=' } else { character });
        }
    }
    text
}

/// Decodes text as Go's `base64.StdEncoding` does: line breaks are passed over, and spare bits may be anything.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut chunks = text.chunks(4).peekable();
    while let Some(chunk) = chunks.next() {
        let last = chunks.peek().is_none();
        let digits = match chunk {
            [_, _, b'=', b'='] if last => chunk.get(..2)?,
            [_, _, _, b'='] if last => chunk.get(..3)?,
            [_, _, _, _] => chunk,
            _ => return None,
        };
        let mut bits = 0_u32;
        for digit in digits {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - digits.len());
        let [_, decoded @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(decoded.get(..digits.len() - 1)?);
    }
    Some(bytes)
}
