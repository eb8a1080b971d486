//! Facts, and comparisons with Helm's libraries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod generate;
pub(crate) mod oracle;

use generate::Random;
use oracle::{Answer, compare, seeds};

use super::*;
use crate::Limits;
use crate::json::Style;

const COMPACT: Style = Style { escape_html: false, pretty: false };

fn context() -> Ctx {
    Ctx::new(Limits::default())
}

fn read_to_json(text: &[u8], strict: bool) -> Answer {
    let mut ctx = context();
    let value = read_bytes(&mut ctx, text, strict);
    value.and_then(|value| json::write(&mut ctx, &value, COMPACT)).into()
}

fn texts() -> Vec<Vec<u8>> {
    (0..seeds())
        .map(|seed| {
            let mut random = Random::new(seed);
            let mut text = generate::yaml(&mut random);
            if random.one_in(2) {
                generate::mutate(&mut random, &mut text);
            }
            text
        })
        .collect()
}

#[test]
fn reads_what_helm_reads() {
    compare("yaml", &texts(), |text| read_to_json(text, false));
}

#[test]
fn reads_strictly_what_helm_reads_strictly() {
    compare("yaml-strict", &texts(), |text| read_to_json(text, true));
}

#[test]
fn writes_what_helm_writes() {
    let values: Vec<Vec<u8>> = (0..seeds())
        .map(|seed| {
            let mut ctx = context();
            let value = generate::value(&mut Random::new(seed), &mut ctx, 0);
            json::write(&mut ctx, &value, COMPACT).unwrap().into_bytes()
        })
        .collect();
    // Seeds give the same values again, from which this side writes.
    let mut seed = 0;
    let values_again = std::cell::RefCell::new(&mut seed);
    compare("write", &values, |_| {
        let mut ctx = context();
        let mut seed = values_again.borrow_mut();
        let value = generate::value(&mut Random::new(**seed), &mut ctx, 0);
        **seed += 1;
        write(&mut ctx, &value).into()
    });
}

#[test]
fn survives_anything() {
    for seed in 0..seeds() * 2 {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut text: Vec<u8> = (0..random.below(60))
            .map(|_| match random.below(3) {
                0 => u8::try_from(random.below(256)).unwrap(),
                _ => b" \n\t:-?'\"\\{}[],#&*!|>%@`~.0123456789abcxue<"[random.below(43)],
            })
            .collect();
        if random.one_in(4) {
            text.splice(0..0, [[0xff, 0xfe], [0xfe, 0xff]][random.below(2)]);
        }
        let mut ctx = context();
        if let Ok(value) = read_bytes(&mut ctx, &text, false) {
            let _ = write(&mut ctx, &value);
        }
    }
}
