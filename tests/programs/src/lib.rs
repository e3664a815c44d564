#![doc = include_str!("../README.md")]

pub mod slow_log;
