//! Signs and verifies X-Service-Signature
