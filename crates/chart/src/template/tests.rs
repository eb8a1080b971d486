//! none yet
