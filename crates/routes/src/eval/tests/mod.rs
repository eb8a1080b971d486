//! Istiod's and Envoy's semantics, by table. What Envoy does was asked of Envoy 1.40.0 with Istio's settings.

mod chain;
mod hosts;
mod matching;
mod merging;
mod paths;
mod world;
