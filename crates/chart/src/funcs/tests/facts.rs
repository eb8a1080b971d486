//! Single facts.
