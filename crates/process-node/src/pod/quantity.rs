//! Kubernetes' quantities, as far as the downward API needs them. Pure.

/// Nano-units, the finest that a quantity can express.
const NANO: i128 = 1_000_000_000;

/// A quantity such as `1500m`, `64Gi` or `1e3`, in billionths. None if it is malformed.
pub(crate) fn parse(text: &str) -> Option<i128> {
    let digits_end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = |factor: i128| Some(divide_up(mantissa.checked_mul(factor)?.checked_mul(NANO)?, decimals));
    let binary = |power: u32| scaled(1024_i128.checked_pow(power)?);
    let thousands = |power: u32| scaled(1000_i128.checked_pow(power)?);
    match suffix {
        "" => scaled(1),
        "n" => Some(divide_up(mantissa, decimals)),
        "u" => Some(divide_up(mantissa.checked_mul(1_000)?, decimals)),
        "m" => Some(divide_up(mantissa.checked_mul(1_000_000)?, decimals)),
        "k" => thousands(1),
        "M" => thousands(2),
        "G" => thousands(3),
        "T" => thousands(4),
        "P" => thousands(5),
        "E" => thousands(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            if exponent >= 0 {
                scaled(power)
            } else {
                Some(divide_up(mantissa.checked_mul(NANO)?, decimals.checked_mul(power)?))
            }
        }
    }
}

/// How often `divisor` goes into `quantity`, rounded up, as `resourceFieldRef` says. A divisor of 0 or none is 1.
pub(crate) fn divided(quantity: &str, divisor: Option<&str>) -> Option<i128> {
    let divisor = match divisor {
        Some(text) => parse(text).filter(|divisor| *divisor > 0).unwrap_or(NANO),
        None => NANO,
    };
    Some(divide_up(parse(quantity)?, divisor))
}

fn divide_up(number: i128, divisor: i128) -> i128 {
    number.div_euclid(divisor) + i128::from(number.rem_euclid(divisor) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_divide_rounding_up() {
        for (quantity, divisor, expected) in [
            ("64", None, Some(64)),
            ("1500m", None, Some(2)),
            ("1500m", Some("1m"), Some(1500)),
            ("0.1", Some("1m"), Some(100)),
            ("1Gi", None, Some(1_073_741_824)),
            ("1Gi", Some("1Mi"), Some(1024)),
            ("1G", Some("1Mi"), Some(954)),
            ("64Gi", Some("0"), Some(68_719_476_736)),
            ("2e3", None, Some(2000)),
            ("5e-1", None, Some(1)),
            ("12E", Some("1E"), Some(12)),
            ("100n", Some("1n"), Some(100)),
            ("two", None, None),
            ("1Xi", None, None),
        ] {
            assert_eq!(divided(quantity, divisor), expected, "{quantity} / {divisor:?}");
        }
    }
}
