//! The REST API for administrators: the only crate that names actix-web
