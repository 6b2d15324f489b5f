;;; sspec-assist.el --- Grey text from sspec-assist over lsp-mode  -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "29.1") (lsp-mode "10.0.0"))
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Put this file on the `load-path' and into the init file:
;;
;;   (require 'sspec-assist)
;;   (add-hook 'prog-mode-hook #'sspec-assist-start)
;;
;; The grey text comes after `sspec-assist-idle-delay'.  TAB or C-<return> takes it, C-n and C-p go
;; through the alternatives, any other command drops it.  `sspec-assist-mode-line' says how the model
;; is.

;;; Code:

(require 'ht)
(require 'lsp-mode)
(require 'lsp-inline-completion)

(defgroup sspec-assist nil
  "Completions from a model on this machine."
  :group 'lsp-mode)

(defcustom sspec-assist-command '("sspec-assist" "lsp")
  "The program of the language server and its arguments."
  :type '(repeat string))

(defcustom sspec-assist-settings nil
  "Settings for the server, as a plist, by the names that README.md lists.
For example (:multiline \"never\" :languages (:markdown :json-false))."
  :type 'plist)

(defcustom sspec-assist-idle-delay 0.3
  "Seconds without a key after which a completion is asked for."
  :type 'number)

(defvar sspec-assist-status nil
  "What the server told last, or nil.")

(defun sspec-assist--take (_workspace status)
  "Keep STATUS and show it."
  (setq sspec-assist-status status)
  (force-mode-line-update t))

(defun sspec-assist-mode-line ()
  "How the model is, in a few characters.
For the mode line: (:eval (sspec-assist-mode-line))."
  (if (null sspec-assist-status)
      ""
    (let ((state (lsp-get sspec-assist-status :state))
          (alpha (lsp-get sspec-assist-status :alpha))
          (times (lsp-get sspec-assist-status :timesPlain)))
      (if (equal state "ready")
          (concat "sspec"
                  (and (numberp alpha) (format " α %.2f" alpha))
                  (and (numberp times) (format " %.2f ×" times)))
        (concat "sspec " state)))))

;;;###autoload
(defun sspec-assist-start ()
  "Complete in this buffer."
  (setq-local lsp-inline-completion-idle-delay sspec-assist-idle-delay)
  (lsp)
  (lsp-inline-completion-mode 1))

;; lsp-mode's own key for this, C-<return>, does not exist in most terminals.
(define-key lsp-inline-completion-active-map (kbd "TAB") #'lsp-inline-completion-accept)

(lsp-register-client
 (make-lsp-client
  :server-id 'sspec-assist
  :new-connection (lsp-stdio-connection (lambda () sspec-assist-command))
  :activation-fn (lambda (&rest _) (derived-mode-p 'prog-mode 'text-mode))
  :add-on? t
  ;; lsp-mode warns of what it has no handler for, so servers tell Emacs nothing unless asked to.
  :initialization-options (lambda () (append '(:status t) sspec-assist-settings))
  :notification-handlers (ht ("sspecAssist/status" #'sspec-assist--take))))

(provide 'sspec-assist)
;;; sspec-assist.el ends here
