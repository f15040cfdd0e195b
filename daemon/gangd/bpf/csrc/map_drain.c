// SPDX-License-Identifier: Apache-2.0
/* Map: the records of a ring buffer. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int append_record(void *context, void *data, size_t len)
{
	struct records *to = context;
	size_t size = to->size ? to->size : 1 << 16;
	char *grown;

	while (size < to->len + len)
		size *= 2;
	if (size != to->size) {
		grown = realloc(to->data, size);
		if (!grown)
			return -ENOMEM;
		to->data = grown;
		to->size = size;
	}
	memcpy(to->data + to->len, data, len);
	to->len += len;
	return 0;
}

PyObject *map_drain(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct map *self = (struct map *)op;
	struct records *to = &self->records;
	int err = 0;
	CORE_LOG(log);

	if (!object_need(self->owner, OBJECT_LOADED))
		return NULL;
	to->len = 0;
	if (!to->ring)
		to->ring = ring_buffer__new(bpf_map__fd(self->bpf), append_record, to, NULL);
	err = to->ring ? ring_buffer__consume(to->ring) : -errno;
	if (err < 0)
		return map_raise(self, err, &log, "read");
	return PyBytes_FromStringAndSize(to->data, (Py_ssize_t)to->len);
}

void map_forget_records(struct map *self)
{
	ring_buffer__free(self->records.ring);
	free(self->records.data);
}
