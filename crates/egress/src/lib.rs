//! Sends one signed POST to a receiver that nobody trusts: the only crate that names hyper's client
