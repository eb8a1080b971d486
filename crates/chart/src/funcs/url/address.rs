//! `netip.ParseAddr`, for the addresses in URLs.

use crate::fmt::quote;

fn error(whole: &[u8], what: &str) -> String {
    format!("ParseAddr({}): {what}", quote(whole))
}

fn error_at(whole: &[u8], what: &str, at: &[u8]) -> String {
    format!("ParseAddr({}): {what} (at {})", quote(whole), quote(at))
}

/// Whether an address is of the fourth version rather than the sixth, or what is wrong with it.
pub(super) fn is_ipv4(text: &[u8]) -> Result<bool, String> {
    match text.iter().find(|byte| b".:%".contains(byte)) {
        Some(b'.') => ipv4(text, text).map(|()| true),
        Some(b':') => ipv6(text).map(|()| false),
        Some(_) => Err(error(text, "missing IPv6 address")),
        None => Err(error(text, "unable to parse IP")),
    }
}

fn ipv4(whole: &[u8], text: &[u8]) -> Result<(), String> {
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (place, &byte) in text.iter().enumerate() {
        let at = text.get(place..).unwrap_or_default();
        if byte.is_ascii_digit() {
            if digits == 1 && value == 0 {
                return Err(error(whole, "IPv4 field has octet with leading zero"));
            }
            value = value * 10 + u32::from(byte - b'0');
            digits += 1;
            if value > 255 {
                return Err(error(whole, "IPv4 field has value >255"));
            }
        } else if byte == b'.' {
            let before = place.checked_sub(1).and_then(|before| text.get(before));
            if before.is_none_or(|&before| before == b'.') || at.len() == 1 {
                return Err(error_at(whole, "IPv4 field must have at least one digit", at));
            }
            if fields == 3 {
                return Err(error(whole, "IPv4 address too long"));
            }
            fields += 1;
            (value, digits) = (0, 0);
        } else {
            return Err(error_at(whole, "unexpected character", at));
        }
    }
    if fields < 3 { Err(error(whole, "IPv4 address too short")) } else { Ok(()) }
}

fn ipv6(whole: &[u8]) -> Result<(), String> {
    let mut rest = whole;
    if let Some(zone) = whole.iter().position(|&byte| byte == b'%') {
        if zone.saturating_add(1) == whole.len() {
            return Err(error(whole, "zone must be a non-empty string"));
        }
        rest = whole.get(..zone).unwrap_or_default();
    }
    let mut ellipsis = false;
    if let Some(after) = rest.strip_prefix(b"::") {
        ellipsis = true;
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
    let mut bytes = 0;
    while bytes < 16 {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > 4 {
            return Err(error_at(whole, "each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err(error_at(whole, "each colon-separated field must have at least one digit", rest));
        }
        if rest.get(digits) == Some(&b'.') {
            if !ellipsis && bytes != 12 {
                let what = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err(error_at(whole, what, rest));
            }
            if bytes > 12 {
                let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(error_at(whole, what, rest));
            }
            ipv4(whole, rest)?;
            rest = &[];
            bytes += 4;
            break;
        }
        bytes += 2;
        rest = rest.get(digits..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(b":") else {
            return Err(error_at(whole, "unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(error_at(whole, "colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(b":") {
            if ellipsis {
                return Err(error_at(whole, "multiple :: in address", rest));
            }
            ellipsis = true;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(error_at(whole, "trailing garbage after address", rest));
    }
    match (bytes < 16, ellipsis) {
        (true, false) => Err(error(whole, "address string too short")),
        (false, true) => Err(error(whole, "the :: must expand to at least one field of zeros")),
        _ => Ok(()),
    }
}
