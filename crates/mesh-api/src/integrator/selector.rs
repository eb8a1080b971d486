//! Which namespaces are meant.

use std::collections::{BTreeMap, BTreeSet};

use kube::KubeSchema;
use kube::core::{Expression, Selector, SelectorExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A set of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = schema::selector_when_selected())]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelection {
    /// Which namespaces: `Same` is the integrator's own, `Selector` those whose labels match `selector`, `All` every
    /// one. Default: `Same`.
    #[serde(default)]
    pub from: NamespacesFrom,
    /// The labels that a namespace must have, when `from` is `Selector`. An empty selector matches every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LabelSelector")]
    pub selector: Option<LabelSelector>,
}

impl NamespaceSelection {
    /// Every namespace.
    pub fn all() -> Self {
        Self { from: NamespacesFrom::All, selector: None }
    }

    /// Whether the namespace of this name and these labels is in the set. `own` is the integrator's own namespace.
    pub fn admits(&self, namespace: &str, labels: &BTreeMap<String, String>, own: &str) -> bool {
        match self.from {
            NamespacesFrom::Same => namespace == own,
            NamespacesFrom::Selector => {
                self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
            }
            NamespacesFrom::All => true,
        }
    }
}

/// How a set of namespaces is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamespacesFrom {
    /// The integrator's own namespace.
    #[default]
    Same,
    /// Those whose labels match the selector.
    Selector,
    /// Every namespace.
    All,
}

/// Labels that are asked for, as in Kubernetes' own selectors: all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelRequirement>,
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal =
            self.match_labels.iter().map(|(key, value)| Expression::Equal(key.clone(), value.clone()));
        let required = self.match_expressions.iter().map(LabelRequirement::to_expression);
        equal.chain(required).collect::<Selector>().matches(labels)
    }
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)")
    .message("values must be given for In and NotIn, and only for them"))]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label is compared with `values`.
    pub operator: LabelOperator,
    /// The values, for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

impl LabelRequirement {
    fn to_expression(&self) -> Expression {
        let values = || self.values.iter().cloned().collect::<BTreeSet<_>>();
        match self.operator {
            LabelOperator::In => Expression::In(self.key.clone(), values()),
            LabelOperator::NotIn => Expression::NotIn(self.key.clone(), values()),
            LabelOperator::Exists => Expression::Exists(self.key.clone()),
            LabelOperator::DoesNotExist => Expression::DoesNotExist(self.key.clone()),
        }
    }
}

/// How a label is compared, with the meanings of Kubernetes' label selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label is there and has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn requirement(key: &str, operator: LabelOperator, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        LabelSelector {
            match_expressions: vec![LabelRequirement { key: key.to_owned(), operator, values }],
            ..LabelSelector::default()
        }
    }

    #[test]
    fn selectors_mean_what_kubernetes_means() {
        let team_a = labels(&[("team", "a")]);
        let none = labels(&[]);
        for (selector, on_team_a, on_none) in [
            (LabelSelector::default(), true, true),
            (LabelSelector { match_labels: team_a.clone(), ..LabelSelector::default() }, true, false),
            (requirement("team", LabelOperator::In, &["a", "b"]), true, false),
            (requirement("team", LabelOperator::In, &["b"]), false, false),
            (requirement("team", LabelOperator::NotIn, &["a"]), false, true),
            (requirement("team", LabelOperator::Exists, &[]), true, false),
            (requirement("team", LabelOperator::DoesNotExist, &[]), false, true),
        ] {
            assert_eq!(selector.matches(&team_a), on_team_a, "{selector:?}");
            assert_eq!(selector.matches(&none), on_none, "{selector:?}");
        }
    }

    #[test]
    fn selections() {
        let none = labels(&[]);
        let selected =
            NamespaceSelection { from: NamespacesFrom::Selector, selector: Some(LabelSelector::default()) };
        let unset = NamespaceSelection { from: NamespacesFrom::Selector, selector: None };
        assert!(NamespaceSelection::default().admits("own", &none, "own"));
        assert!(!NamespaceSelection::default().admits("a", &none, "own"));
        assert!(NamespaceSelection::all().admits("a", &none, "own"));
        assert!(selected.admits("a", &none, "own"));
        assert!(!unset.admits("a", &none, "own"), "a missing selector admits nobody");
    }
}
