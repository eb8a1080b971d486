//! Formats of `Sprintf`: flags, widths, precisions and argument indexes.

use super::print::{Flags, LARGEST, Printer};
use super::type_name;
use crate::Failure;
use crate::value::Value;

impl Printer<'_> {
    /// Prints by a format.
    pub(super) fn format(&mut self, format: &[u8], args: &[Value]) -> Result<(), Failure> {
        let mut scan = Scan { format, at: 0, args, next: 0, reordered: false, good: true };
        loop {
            let rest = format.get(scan.at..).unwrap_or_default();
            let plain = rest.iter().position(|&byte| byte == b'%').unwrap_or(rest.len());
            self.write(rest.get(..plain).unwrap_or_default());
            scan.at = scan.at.saturating_add(plain);
            if scan.at >= format.len() {
                break;
            }
            scan.at += 1;
            if !self.verb(&mut scan)? {
                break;
            }
            self.count()?;
        }
        if !scan.reordered && scan.next < args.len() {
            self.flags = Flags::default();
            self.text("%!(EXTRA ");
            for (position, arg) in args.get(scan.next..).unwrap_or_default().iter().enumerate() {
                if position > 0 {
                    self.text(", ");
                }
                if matches!(arg, Value::Nil) {
                    self.text("<nil>");
                } else {
                    let name = type_name(&self.ctx.heap, arg);
                    self.text(name);
                    self.text("=");
                    self.arg(arg, 'v')?;
                }
            }
            self.text(")");
        }
        Ok(())
    }

    /// Prints what follows a percent sign; false if the format ends instead of a verb.
    fn verb(&mut self, scan: &mut Scan<'_>) -> Result<bool, Failure> {
        scan.good = true;
        self.flags = Flags::default();
        while let Some(byte) = scan.peek() {
            match byte {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            scan.at += 1;
        }
        let mut after_index = scan.index();
        if scan.peek() == Some(b'*') {
            scan.at += 1;
            match scan.number_from_args() {
                None => self.text("%!(BADWIDTH)"),
                Some(width) => {
                    if width < 0 {
                        self.flags.minus = true;
                        self.flags.zero = false;
                    }
                    self.flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
            }
            after_index = false;
        } else {
            self.flags.width = scan.number();
            if after_index && self.flags.width.is_some() {
                scan.good = false;
            }
        }
        if scan.peek() == Some(b'.') && scan.at.saturating_add(1) < scan.format.len() {
            scan.at += 1;
            if after_index {
                scan.good = false;
            }
            after_index = scan.index();
            if scan.peek() == Some(b'*') {
                scan.at += 1;
                self.flags.precision =
                    scan.number_from_args().and_then(|precision| usize::try_from(precision).ok());
                if self.flags.precision.is_none() {
                    self.text("%!(BADPREC)");
                }
                after_index = false;
            } else {
                self.flags.precision = Some(scan.number().unwrap_or_default());
            }
        }
        if !after_index {
            scan.index();
        }
        let Some(verb) = scan.verb() else {
            self.text("%!(NOVERB)");
            return Ok(false);
        };
        if verb == '%' {
            self.text("%");
        } else if !scan.good {
            self.text("%!");
            self.rune(verb);
            self.text("(BADINDEX)");
        } else if let Some(arg) = scan.args.get(scan.next) {
            if matches!(verb, 'v' | 'w') {
                self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
                self.flags.plus = false;
            }
            self.arg(arg, verb)?;
            scan.next += 1;
        } else {
            self.text("%!");
            self.rune(verb);
            self.text("(MISSING)");
        }
        Ok(true)
    }
}
/// A format as it is read.
struct Scan<'f> {
    format: &'f [u8],
    at: usize,
    args: &'f [Value],
    next: usize,
    /// Whether an argument index was used.
    reordered: bool,
    /// Whether the argument indexes of this verb were fine.
    good: bool,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    /// Reads digits. A number too large eats the rest of the format, as in Go.
    fn number(&mut self) -> Option<usize> {
        let (number, end) = digits(self.format, self.at, self.format.len());
        self.at = end;
        number
    }

    fn number_from_args(&mut self) -> Option<i64> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        match arg {
            Value::Int(number) | Value::Int64(number) if (-LARGEST..=LARGEST).contains(number) => {
                Some(*number)
            }
            _ => None,
        }
    }

    /// Reads an argument index, as in `%[2]d`; whether there was one.
    fn index(&mut self) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        self.reordered = true;
        let rest = self.format.get(self.at..).unwrap_or_default();
        let close = rest.iter().position(|&byte| byte == b']').filter(|_| rest.len() >= 3);
        let Some(close) = close else {
            self.at += 1;
            self.good = false;
            return false;
        };
        let (number, end) = digits(rest, 1, close);
        self.at = self.at.saturating_add(close).saturating_add(1);
        let parsed = number.filter(|_| end == close);
        match parsed.and_then(|number| number.checked_sub(1)) {
            Some(position) if position < self.args.len() => self.next = position,
            _ => self.good = false,
        }
        parsed.is_some()
    }

    fn verb(&mut self) -> Option<char> {
        let rest = self.format.get(self.at..).filter(|rest| !rest.is_empty())?;
        let chunk = rest.utf8_chunks().next()?;
        let Some(verb) = chunk.valid().chars().next() else {
            self.at += 1;
            return Some(char::REPLACEMENT_CHARACTER);
        };
        self.at = self.at.saturating_add(verb.len_utf8());
        Some(verb)
    }
}

fn digits(text: &[u8], from: usize, end: usize) -> (Option<usize>, usize) {
    let mut number: Option<usize> = None;
    let mut at = from;
    while at < end {
        let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) else { break };
        let sum = number.unwrap_or_default();
        if sum > 1_000_000 {
            return (None, end);
        }
        number = Some(sum * 10 + usize::from(digit - b'0'));
        at += 1;
    }
    (number, at)
}
