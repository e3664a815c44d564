//! Who calls: the two back ends of sessions, keys of programs, and how often a session may call.
mod application;
mod database;
mod introspection;
mod keys;
mod pace;
