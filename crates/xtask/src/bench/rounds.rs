//! Rounds of measurements, and the table of what came out.

use anyhow::{Result, ensure};

/// What is measured of each case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// The heading of the column.
    pub(super) name: &'static str,
    /// How many digits are printed after the point.
    pub(super) digits: usize,
}

/// The figures of the rounds: for each case, each measure's in the order of the rounds.
#[derive(Debug)]
pub(super) struct Figures {
    measures: Vec<Measure>,
    cases: Vec<(String, Vec<Vec<f64>>)>,
}

/// Measures every case once in each round. `measure` gets the place of a case and returns a figure for each measure; the
/// order of the cases turns by one from round to round, so that none is always first.
pub(super) fn rounds(
    number: u8,
    cases: &[String],
    measures: &[Measure],
    mut measure: impl FnMut(usize) -> Result<Vec<f64>>,
) -> Result<Figures> {
    let mut figures = Figures {
        measures: measures.to_vec(),
        cases: cases.iter().map(|case| (case.clone(), vec![Vec::new(); measures.len()])).collect(),
    };
    for round in 0..usize::from(number) {
        println!("round {} of {number}", round + 1);
        for turn in 0..cases.len() {
            let place = (turn + round) % cases.len();
            let values = measure(place)?;
            ensure!(
                values.len() == measures.len(),
                "{} figures for {} measures",
                values.len(),
                measures.len()
            );
            let shown: Vec<String> = values
                .iter()
                .zip(measures)
                .map(|(value, measure)| format!("{} {value:.*}", measure.name, measure.digits))
                .collect();
            println!("  {:<52} {}", cases[place], shown.join(", "));
            for (list, value) in figures.cases[place].1.iter_mut().zip(values) {
                list.push(value);
            }
        }
    }
    Ok(figures)
}

/// The middle figure; the mean of the two in the middle where their number is even; not a number if there is none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.len() % 2) {
        (Some(middle), 1) => *middle,
        (Some(upper), _) => f64::midpoint(*upper, sorted[sorted.len() / 2 - 1]),
        (None, _) => f64::NAN,
    }
}

impl Figures {
    /// The median of a measure of a case, both by place.
    pub(super) fn median(&self, case: usize, measure: usize) -> f64 {
        median(&self.cases[case].1[measure])
    }

    /// The median of what a measure of one case is in proportion to that of another, round by round: a round in which
    /// everything was slow counts like any other.
    pub(super) fn ratio(&self, case: usize, to: usize, measure: usize) -> f64 {
        let (own, others) = (&self.cases[case].1[measure], &self.cases[to].1[measure]);
        median(&own.iter().zip(others).map(|(own, other)| own / other).collect::<Vec<_>>())
    }

    /// The median of how much more a measure of one case is than that of another, round by round.
    pub(super) fn difference(&self, case: usize, to: usize, measure: usize) -> f64 {
        let (own, others) = (&self.cases[case].1[measure], &self.cases[to].1[measure]);
        median(&own.iter().zip(others).map(|(own, other)| own - other).collect::<Vec<_>>())
    }

    /// Prints one table for each measure: medians, and every figure beside them. `base` is the case, by place, to which a
    /// case is put in proportion; a case that is its own base has no ratio.
    pub(super) fn print(&self, base: impl Fn(usize) -> usize) {
        for (column, measure) in self.measures.iter().enumerate() {
            println!("\n{:<52} {:>12} {:>7}   every round", measure.name, "median", "ratio");
            for (place, (case, values)) in self.cases.iter().enumerate() {
                let to = base(place);
                let ratio =
                    if to == place { String::new() } else { format!("{:.3}", self.ratio(place, to, column)) };
                let all: Vec<String> =
                    values[column].iter().map(|value| format!("{value:.*}", measure.digits)).collect();
                let middle = self.median(place, column);
                println!("{case:<52} {middle:>12.*} {ratio:>7}   {}", measure.digits, all.join(" "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn every_case_is_measured_in_each_round_and_compared_round_by_round() {
        let mut order = Vec::new();
        let cases = ["a".to_owned(), "b".to_owned()];
        let measures = [Measure { name: "seconds", digits: 1 }];
        let figures = rounds(3, &cases, &measures, |place| {
            order.push(place);
            // The second round is ten times as slow.
            let slow = if order.len() == 3 || order.len() == 4 { 10.0 } else { 1.0 };
            Ok(vec![if place == 0 { slow } else { slow * 2.0 }])
        })
        .unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert!((figures.ratio(1, 0, 0) - 2.0).abs() < 1e-9);
        assert!((figures.difference(1, 0, 0) - 1.0).abs() < 1e-9);
        assert!((figures.median(1, 0) - 2.0).abs() < 1e-9);
        assert!(rounds(1, &cases, &measures, |_| Ok(Vec::new())).is_err());
    }
}
