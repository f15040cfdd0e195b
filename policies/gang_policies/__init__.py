# SPDX-License-Identifier: Apache-2.0
"""gangd's own policies: pure functions that may import `gangd.model` only.

A policy is an object with a `name` and a `decide(domain, evidence)`; see
`gangd.model.policy.Policy`. It is found by the entry point group
`gangd.policies`, so a third party can add one without touching gangd.
"""
