// SPDX-License-Identifier: Apache-2.0
/* errno and libbpf's messages -> BpfError. Nothing is ever printed to stderr. */
#include "core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cause is at the end of a verifier log: of a longer one, the end is kept. */
#define LOG_MAX (4u << 20)

static _Thread_local struct core_log *current_log;

static bool log_reserve(struct core_log *log, size_t more)
{
	size_t size = log->size ? log->size : 1024;
	char *text;

	while (size < log->len + more)
		size *= 2;
	if (size == log->size)
		return true;
	text = realloc(log->text, size);
	if (!text)
		return false;
	log->text = text;
	log->size = size;
	return true;
}

static void log_trim(struct core_log *log)
{
	size_t excess;

	if (log->len <= LOG_MAX)
		return;
	excess = log->len - LOG_MAX;
	memmove(log->text, log->text + excess, LOG_MAX);
	log->len = LOG_MAX;
}

/* Runs without the GIL: libc only. */
static int log_print(enum libbpf_print_level level, const char *fmt, va_list args)
{
	struct core_log *log = current_log;
	va_list again;
	int len;

	if (!log || level == LIBBPF_DEBUG)
		return 0;
	va_copy(again, args);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (len <= 0 || !log_reserve(log, (size_t)len + 1))
		return 0;
	vsnprintf(log->text + log->len, (size_t)len + 1, fmt, args);
	log->len += (size_t)len;
	log_trim(log);
	return len;
}

void core_log_install(void)
{
	libbpf_set_print(log_print);
}

void core_log_begin(struct core_log *log)
{
	memset(log, 0, sizeof(*log));
	log->outer = current_log;
	current_log = log;
}

void core_log_end(struct core_log *log)
{
	current_log = log->outer;
	free(log->text);
}

static PyObject *error_text(int err, const char *what, va_list args)
{
	PyObject *what_text, *text;

	what_text = PyUnicode_FromFormatV(what, args);
	if (!what_text)
		return NULL;
	if (err == KERNEL_ENOTSUPP)
		text = PyUnicode_FromFormat("%U: not supported by this kernel (ENOTSUPP)",
					    what_text);
	else
		text = PyUnicode_FromFormat("%U: %s", what_text, strerror(err));
	Py_DECREF(what_text);
	return text;
}

static PyObject *error_new(PyObject *type, int err, PyObject *text, const struct core_log *log)
{
	PyObject *exc, *log_text;
	int failed;

	exc = PyObject_CallFunction(type, "iO", err, text);
	if (!exc)
		return NULL;
	log_text = PyUnicode_DecodeUTF8(log && log->len ? log->text : "",
					log ? (Py_ssize_t)log->len : 0, "replace");
	failed = !log_text || PyObject_SetAttrString(exc, "log", log_text);
	Py_XDECREF(log_text);
	if (failed)
		Py_CLEAR(exc);
	return exc;
}

/*
 * Raise BpfError "<what>: <strerror>". The sign of err does not matter: libbpf
 * returns -errno, libc sets errno. Always returns NULL, so callers can return it.
 */
void *core_raise(struct core_state *st, int err, const struct core_log *log, const char *what, ...)
{
	PyObject *text, *exc;
	va_list args;

	err = abs(err);
	va_start(args, what);
	text = error_text(err, what, args);
	va_end(args);
	if (!text)
		return NULL;
	exc = error_new(st->error, err, text, log);
	Py_DECREF(text);
	if (exc)
		PyErr_SetObject(st->error, exc);
	Py_XDECREF(exc);
	return NULL;
}
