//! Timestamps, which go-yaml reads as strings but writes with quotes.

/// Whether Go's `time.Parse` takes the text for a time in one of go-yaml's four layouts.
pub(super) fn is_timestamp(text: &str) -> bool {
    parse(text.as_bytes()).is_some()
}

fn parse(text: &[u8]) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    if !year.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let year = year.iter().fold(0, |year, digit| year * 10 + u32::from(digit - b'0'));
    let (month, rest) = number(expect(rest, b'-')?)?;
    let (day, rest) = number(expect(rest, b'-')?)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day < 1 || day > days {
        return None;
    }
    match rest {
        [] => Some(()),
        [b'T' | b't', rest @ ..] => zone(clock(rest)?),
        [b' ', ..] => {
            let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
            clock(rest.get(blanks..)?)?.is_empty().then_some(())
        }
        _ => None,
    }
}

fn expect(text: &[u8], byte: u8) -> Option<&[u8]> {
    text.strip_prefix(&[byte])
}

/// A number of one or two digits.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    match text {
        [high @ b'0'..=b'9', low @ b'0'..=b'9', rest @ ..] => {
            Some((u32::from(high - b'0') * 10 + u32::from(low - b'0'), rest))
        }
        [digit @ b'0'..=b'9', rest @ ..] => Some((u32::from(digit - b'0'), rest)),
        _ => None,
    }
}

/// Hours, minutes and seconds with or without a fraction, and what follows.
fn clock(text: &[u8]) -> Option<&[u8]> {
    let (hour, rest) = number(text)?;
    let (minute, rest) = number(expect(rest, b':')?)?;
    let (second, rest) = number(expect(rest, b':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    match rest {
        [b'.' | b',', b'0'..=b'9', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            fraction.get(digits..)
        }
        _ => Some(rest),
    }
}

fn zone(text: &[u8]) -> Option<()> {
    match text {
        [b'Z'] => Some(()),
        [b'+' | b'-', hour @ .., b':', _, _] if hour.len() == 2 => {
            let fixed = |digits: &[u8]| match number(digits) {
                Some((number, [])) if digits.len() == 2 => Some(number),
                _ => None,
            };
            let minute = text.get(4..)?;
            (fixed(hour)? <= 24 && fixed(minute)? <= 60).then_some(())
        }
        _ => None,
    }
}
